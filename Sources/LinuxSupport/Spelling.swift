/// Returns the known word that a misspelled one most likely means: one with an edit distance of at most 2, or else the
/// only one that begins with it.
public func closestWord(to word: String, among known: some Sequence<String>) -> String? {
    let near = known.map { (distance: editDistance(word, $0), word: $0) }.filter { $0.distance <= 2 }.min { $0 < $1 }
    if let near { return near.word }
    let longer = known.filter { $0.hasPrefix(word) }
    return longer.count == 1 && word.utf8.count >= 3 ? longer[0] : nil
}

/// The Levenshtein distance: the number of letters to insert, remove or replace.
private func editDistance(_ left: String, _ right: String) -> Int {
    let right = Array(right.utf8)
    var row = Array(0...right.count)
    for (index, byte) in left.utf8.prefix(64).enumerated() {
        var diagonal = row[0]
        row[0] = index + 1
        for column in right.indices {
            let replaced = diagonal + (byte == right[column] ? 0 : 1)
            diagonal = row[column + 1]
            row[column + 1] = min(replaced, diagonal + 1, row[column] + 1)
        }
    }
    return row[right.count]
}
