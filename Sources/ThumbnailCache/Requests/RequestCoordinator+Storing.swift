// What is on its way to the disk, or from it, after a download.

extension RequestCoordinator {
    /// Asked right before a downloaded image appears on disk.
    func mayStore(_ slot: Slot, _ number: UInt64) -> Bool {
        activity[slot]?.storing?.flight == number
    }

    /// The downloaded image that is on its way to the disk.
    func storing(_ slot: Slot) -> ServedImage? { activity[slot]?.storing?.served }

    /// Whether a downloaded image is on its way to the disk.
    var isStoring: Bool { activity.values.contains { $0.storing != nil } }

    /// The write of a downloaded image has ended, well or not.
    mutating func stored(_ slot: Slot, _ number: UInt64) {
        guard mayStore(slot, number) else { return }
        activity[slot]?.storing = nil
        tidy(slot)
    }

    /// A downloaded image could not be written, or too much waits for that: whoever waited has it, but nothing older may take its place.
    /// An image that was only confirmed stays as it is on disk: its bytes are the right ones, and it is asked about again.
    mutating func notStored(_ slot: Slot, _ number: UInt64) -> [Effect] {
        guard mayStore(slot, number) else { return [] }
        guard activity[slot]?.storing?.isConfirmed == false else {
            stored(slot, number)
            return []
        }
        return drop(slot, flight: number)
    }

    /// Asked right before an image that the origin no longer has is removed: not if another has come since.
    func mayDrop(_ slot: Slot, _ number: UInt64) -> Bool {
        activity[slot]?.dropping == number
    }

    mutating func dropped(_ slot: Slot, _ number: UInt64) {
        guard mayDrop(slot, number) else { return }
        activity[slot]?.dropping = nil
        tidy(slot)
    }
}
