/// Creates a certificate authority and a server certificate for localhost.
func makeCertificates(_ machine: Machine) throws -> (
    authority: String, certificate: String, key: String
) {
    let directory = try machine.makeDirectory("tls")
    try write("subjectAltName=DNS:localhost\n", to: "\(directory)/names")
    for words in [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=localhost",
        "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out certificate.pem -days 2"
            + " -extfile names",
    ] {
        try machine.runSuccessfully(
            ["openssl"] + words.split(separator: " ").map(String.init), directory: directory)
    }
    return ("\(directory)/ca.pem", "\(directory)/certificate.pem", "\(directory)/key.pem")
}
