extension RequestCoordinator {
    /// How a download ended, judged.
    enum DownloadResult: Sendable {
        case image(Image, storable: Bool)
        /// The image that the download was conditional on still holds, with what is now known of it.
        case confirmed(Image, storable: Bool)
        /// There is none for the tokens of that family; remember that until this moment (seconds since 1970).
        case missing(until: Int64, family: UInt32)
        case failed(CacheFailure)

        var image: Image? {
            switch self {
            case .image(let image, _), .confirmed(let image, _): image
            case .missing, .failed: nil
            }
        }

        /// The image that is to be held from now on.
        var storable: Image? {
            switch self {
            case .image(let image, storable: true), .confirmed(let image, storable: true): image
            case .image, .confirmed, .missing, .failed: nil
            }
        }

        /// What whoever waited for it is told.
        var source: ServedImage.Source {
            if case .confirmed = self { .revalidated } else { .origin }
        }
    }
}
