"""A Django site whose page has images of django-gravatar2 and python3-libravatar, shown in Chromium.

    django_site.py AVATARS SCREENSHOT NAME …

AVATARS is the address of thumbcached-http. Each NAME is a person at example.org. Prints how many images of each library
the server returns, by type, and how many the browser shows, and saves a screenshot.
"""

import collections
import sys
import tempfile
import threading
import urllib.request
import wsgiref.simple_server

import django
import django.conf
import django.core.wsgi
import django.http
import django.template
import django.urls
import dns.resolver
import libravatar

from chromium import Browser

PAGE = """<!DOCTYPE html>
<title>Members</title>
<style>body{font:15px sans-serif;margin:16px}section{display:flex;gap:12px;margin-bottom:16px}h2{font-size:15px}
figure{margin:0;text-align:center}img{border-radius:8px}</style>
{% load gravatar %}
<h2>django-gravatar2</h2>
<section id="gravatar">{% for member in members %}<figure>{% gravatar member.address 64 member.name %}
<figcaption>{{ member.name }}</figcaption></figure>{% endfor %}</section>
<h2>python3-libravatar</h2>
<section id="libravatar">{% for member in members %}<figure>
<img src="{{ member.libravatar }}" width="64" height="64" alt="{{ member.name }}">
<figcaption>{{ member.name }}</figcaption></figure>{% endfor %}</section>
"""

avatars, picture, *names = sys.argv[1:]
django.conf.settings.configure(
    ALLOWED_HOSTS=["localhost"], ROOT_URLCONF=__name__, INSTALLED_APPS=["django_gravatar"],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    GRAVATAR_URL=f"{avatars}/", GRAVATAR_DEFAULT_SECURE=False)
django.setup()
libravatar.BASE_URL = f"{avatars}/avatar/"
# The domain of the addresses has no server of its own: no DNS server is asked.
dns.resolver.default_resolver = dns.resolver.Resolver(configure=False)


def members(request):
    listed = [{"name": name, "address": f"{name}@example.org",
               "libravatar": libravatar.libravatar_url(f"{name}@example.org", size=64)} for name in names]
    template = django.template.engines["django"].from_string(PAGE)
    return django.http.HttpResponse(template.render({"members": listed}, request))


urlpatterns = [django.urls.path("", members)]


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


server = wsgiref.simple_server.make_server(
    "127.0.0.1", 0, django.core.wsgi.get_wsgi_application(), handler_class=Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with tempfile.TemporaryDirectory() as home:
    browser = Browser(home)
    try:
        # A name, since Chromium treats two ports of an IP address as different sites (Cross-Origin-Resource-Policy).
        browser.call("Emulation.setDeviceMetricsOverride", width=720, height=286, deviceScaleFactor=1, mobile=False)
        browser.open(f"http://localhost:{server.server_port}/")
        for library in ("gravatar", "libravatar"):
            images = f"[...document.querySelectorAll('#{library} img')]"
            types = collections.Counter()
            for url in browser.run(f"{images}.map(image => image.src)"):
                with direct.open(url) as response:
                    types[response.headers["Content-Type"]] += 1
            shown = browser.run(f"{images}.filter(image => image.complete && image.naturalWidth > 0).length")
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(types.items()))
            print(f"{library}: {counts}; {shown} shown")
        browser.screenshot(picture)
    finally:
        browser.process.kill()
        browser.process.wait()
