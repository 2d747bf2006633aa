/// Numbers that grow over a test. Each image contains one, so that the test can tell whether it is older than a purge.
struct Serial {
    private let last = Watched(0)

    var newest: Int { last.current }

    func next() -> Int {
        last.change { number in
            number += 1
            return number
        }
    }

    /// An image of a profile. Its size depends on the number.
    static func image(_ profile: String, _ number: Int) -> [UInt8] {
        TestImage.gif("\(profile) #\(number).", size: 100 + number &* 7_919 % 30_000)
    }

    /// The number of an image; nil if the image was altered or belongs to another profile.
    static func number(of image: [UInt8], _ profile: String) -> Int? {
        let text = String(decoding: image.dropFirst(22).prefix { $0 != 0 }, as: UTF8.self)
        guard let mark = text.lastIndex(of: "#"), text.last == ".",
            let number = Int(text[text.index(after: mark)...].dropLast()), areSame(Self.image(profile, number), image)
        else { return nil }
        return number
    }
}
