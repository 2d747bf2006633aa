extension StatusPage {
    /// Adapts to light and dark, and to narrow and wide screens.
    static let style = """
        :root{color-scheme:light dark;--back:#f4f5f7;--card:#fff;--text:#1c2430;--soft:#5b6675;--rule:#e1e5ea;\
        --line:#2563c9;--area:#2563c91f;--good:#126b3a;--goodback:#dcf3e4;--bad:#a3201c;--badback:#fde4e2}
        @media(prefers-color-scheme:dark){:root{--back:#12161c;--card:#1b212a;--text:#e6eaf0;--soft:#97a3b3;\
        --rule:#2c3541;--line:#74a9ff;--area:#74a9ff26;--good:#7fdca4;--goodback:#153524;--bad:#ff9c94;\
        --badback:#431b1a}}
        *{box-sizing:border-box}
        body{margin:0 auto;padding:20px 16px 32px;max-width:1160px;background:var(--back);color:var(--text);\
        font:15px/1.45 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums}
        header{display:flex;flex-wrap:wrap;align-items:baseline;justify-content:space-between;gap:4px 16px;\
        margin-bottom:16px}
        h1{margin:0;font-size:24px;letter-spacing:-.01em}
        h2{margin:0;font-size:13px;font-weight:600;color:var(--soft)}
        p{margin:0}
        header p,.remark,footer{color:var(--soft);font-size:13px}
        .pill{display:inline-block;margin-left:6px;padding:2px 10px;border-radius:99px;font-size:13px;\
        font-weight:600;letter-spacing:0;vertical-align:4px}
        .pill.good{background:var(--goodback);color:var(--good)}
        .pill.bad,.notice{background:var(--badback);color:var(--bad)}
        .notice{margin-bottom:12px;padding:10px 14px;border-radius:8px;overflow-wrap:anywhere}
        .cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,200px),1fr));gap:12px}
        .facts{grid-template-columns:repeat(auto-fit,minmax(min(100%,205px),1fr))}
        .card{padding:14px 16px;border:1px solid var(--rule);border-radius:10px;background:var(--card);min-width:0}
        .wide{margin:12px 0}
        .figure{margin-top:2px;font-size:30px;font-weight:650;line-height:1.25;letter-spacing:-.02em}
        .figure small{font-size:15px;font-weight:400;letter-spacing:0;color:var(--soft)}
        .plot{display:block;width:100%;height:48px;margin-top:10px;overflow:visible}
        .plot path{fill:none;vector-effect:non-scaling-stroke}
        .plot .base{stroke:var(--rule)}
        .plot .area{fill:var(--area)}
        .plot .line{stroke:var(--line);stroke-width:1.75;stroke-linejoin:round;stroke-linecap:round}
        .scale{display:flex;justify-content:space-between;margin-top:4px;color:var(--soft);font-size:12px}
        .scroll{overflow-x:auto;margin-top:8px}
        table{width:100%;border-collapse:collapse;white-space:nowrap}
        th,td{padding:6px 0 6px 18px;text-align:right;font-weight:400;border-top:1px solid var(--rule)}
        th:first-child{padding-left:0;text-align:left}
        thead th{border-top:0;color:var(--soft);font-size:13px}
        .none th,.none td{color:var(--soft)}
        @media(max-width:640px){.card{padding:12px 10px}table{font-size:12px}th,td{padding-left:6px}\
        thead th{white-space:normal;font-size:11px;vertical-align:bottom}\
        tbody th{min-width:56px;white-space:normal;overflow-wrap:anywhere}}
        @media(max-width:480px){body{padding:14px 10px 24px}}
        dl{margin:6px 0 0}
        dl div{display:flex;justify-content:space-between;gap:12px;padding:4px 0;border-top:1px solid var(--rule)}
        dl div:first-child{border-top:0}
        dt{color:var(--soft)}
        dd{margin:0;text-align:right;white-space:nowrap}
        strong.bad{color:var(--bad)}
        strong.bad::before{content:"\\25B2\\00A0";font-size:.75em}
        a{color:var(--line)}
        footer{margin-top:18px;text-wrap:pretty}
        """
}
