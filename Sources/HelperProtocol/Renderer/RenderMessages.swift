import ImageOptions
import NIOCore

/// The output of a rendering: an image file or, to draw on a terminal, its pixels. Raw values are those of renderer.h.
package enum RenderOutput: RawRepresentable, Sendable, Hashable {
    case file(ImageFormat)
    /// Red, green, blue and opacity of each pixel, a byte each, in rows from the top.
    case pixels

    package var rawValue: UInt8 {
        switch self {
        case .file(let format): format.byte
        case .pixels: 4
        }
    }

    package init?(rawValue: UInt8) {
        if rawValue == Self.pixels.rawValue {
            self = .pixels
        } else if let format = ImageFormat(byte: rawValue) {
            self = .file(format)
        } else {
            return nil
        }
    }
}

/// A request to render an image in another size. The body is the source image.
package struct RenderRequest: Sendable, Hashable {
    /// Maximum bytes of a source image and of a rendition.
    package static let maximumImage = 64 << 20

    /// Repeated in the reply. It does not identify a user.
    package var number: UInt32
    /// Pixels of each side.
    package var side: UInt16
    package var fit: ImageFit
    package var output: RenderOutput

    package init(number: UInt32, side: UInt16, fit: ImageFit, output: RenderOutput) {
        (self.number, self.side, self.fit, self.output) = (number, side, fit, output)
    }

    package func write(to buffer: inout ByteBuffer, body: Int) {
        MessageWriter.add(to: &buffer, body: body) { message in
            message.integer(number)
            message.integer(side)
            message.integer(fit.byte)
            message.enumeration(output)
        }
    }

    package init(_ fields: ByteBuffer) throws(MessageError) {
        var message = MessageReader(fields)
        (number, side) = (try message.integer(), try message.integer())
        guard side > 0 else { throw MessageError("a side of 0 pixels") }
        let byte = try message.integer(as: UInt8.self)
        guard let fit = ImageFit(byte: byte) else { throw MessageError("unknown fit \(byte)") }
        (self.fit, output) = (fit, try message.enumeration())
        try message.end()
    }
}

/// The reply to a ``RenderRequest``. The body is the rendition.
package struct RenderReply: Sendable, Hashable {
    package enum Outcome: UInt8, Sendable, Hashable {
        case rendered = 0
        /// No decoder accepts the source, or it is truncated.
        case broken = 1
        case tooManyPixels = 2
        case unknownFormat = 3
    }

    package var number: UInt32
    package var outcome: Outcome
    /// The output: never ``ImageFormat/source`` if the outcome is ``Outcome/rendered``.
    package var output: RenderOutput
    /// In pixels.
    package var width, height: UInt16

    package init(
        number: UInt32, outcome: Outcome, output: RenderOutput = .file(.source), width: UInt16 = 0, height: UInt16 = 0
    ) {
        (self.number, self.outcome, self.output) = (number, outcome, output)
        (self.width, self.height) = (width, height)
    }

    package func write(to buffer: inout ByteBuffer, body: Int = 0) {
        MessageWriter.add(to: &buffer, body: body) { message in
            message.integer(number)
            message.enumeration(outcome)
            message.enumeration(output)
            message.integer(width)
            message.integer(height)
        }
    }

    /// Checks the reply, because an attacker who took over the worker may have written it.
    /// - Throws: if the reply belongs to another request, or describes an impossible rendition: without bytes, without
    ///   pixels, larger or in another format than requested, or of pixels whose number does not fit the body.
    package init(_ fields: ByteBuffer, body: Int, to request: RenderRequest) throws(MessageError) {
        var message = MessageReader(fields)
        (number, outcome, output) = (try message.integer(), try message.enumeration(), try message.enumeration())
        (width, height) = (try message.integer(), try message.integer())
        try message.end()
        guard number == request.number else { throw MessageError("reply to another request") }
        guard outcome == .rendered else {
            guard body == 0 else { throw MessageError("\(outcome) with a body") }
            return
        }
        guard body > 0, width > 0, height > 0, output != .file(.source) else {
            throw MessageError("an empty rendition")
        }
        guard width <= request.side, height <= request.side else {
            throw MessageError("\(width) x \(height) pixels in a square of \(request.side)")
        }
        guard request.output == .file(.source) || output == request.output else { throw MessageError("another format") }
        guard output != .pixels || body == 4 * Int(width) * Int(height) else {
            throw MessageError("\(body) bytes for \(width) x \(height) pixels")
        }
    }
}
