// ImageSize, ImageFit and ImageFormat are types of this library's public interface.
@_exported import ImageOptions

extension ThumbcacheRequest {
    mutating func append(_ size: ImageSize?) {
        guard let size else { return }
        append("SIZE", size.pixels)
        append("FIT", size.fit == .cover ? nil : size.fit.rawValue)
        append("FORMAT", size.format == .source ? nil : size.format.rawValue)
    }
}
