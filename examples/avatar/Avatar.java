// One picture from thumbcached, in Java 17, without a library (apt install openjdk-17-jdk-headless): Jedis and Lettuce
// would have to be told how to connect to a Unix socket, which Java itself has known since version 16.
//
//   java Avatar.java USER PROFILE COPY [PICTURE]
//
// Logs USER in, writes the picture of PROFILE to the file COPY, logs USER out, and asks once more. The picture is
// the file PICTURE if there is one, otherwise the daemon downloads it. THUMBCACHED_SOCKET names the daemon's socket.
// The exit status is 0 when all went well, 4 if there is no picture, 2 for a wrong command line, else 1.
import java.io.*;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;

public class Avatar {
    private final OutputStream out;
    private final InputStream in;

    Avatar(String path) throws IOException {
        SocketChannel channel = SocketChannel.open(UnixDomainSocketAddress.of(path));
        out = new BufferedOutputStream(Channels.newOutputStream(channel));
        in = new BufferedInputStream(Channels.newInputStream(channel));
    }

    /** A request is an array of byte strings, each with its length in front. */
    Object ask(Object... words) throws IOException {
        out.write(("*" + words.length + "\r\n").getBytes());
        for (Object word : words) {
            byte[] bytes = word instanceof byte[] given ? given : word.toString().getBytes();
            out.write(("$" + bytes.length + "\r\n").getBytes());
            out.write(bytes);
            out.write("\r\n".getBytes());
        }
        out.flush();
        return reply();
    }

    /** A reply, by its first character: a String, a Long, a byte array, a List, or null. Errors are thrown. */
    private Object reply() throws IOException {
        StringBuilder line = new StringBuilder();
        for (int next = in.read(); next != '\r'; next = in.read()) {
            if (next < 0) throw new EOFException("the daemon closed the connection");
            line.append((char) next);
        }
        in.skipNBytes(1);
        String rest = line.substring(1);
        switch (line.charAt(0)) {
            case '+': return rest;
            case ':': return Long.valueOf(rest);
            case '-': throw new IOException(rest);
        }
        int length = Integer.parseInt(rest);
        if (length < 0) return null;
        if (line.charAt(0) == '$') {
            byte[] bytes = in.readNBytes(length);
            in.skipNBytes(2);
            return bytes;
        }
        List<Object> elements = new ArrayList<>();
        for (int i = 0; i < length; i++) elements.add(reply());
        return elements;
    }

    /** What others do with a client begins here. */
    boolean run(String user, String profile, String copy, String picture) throws IOException {
        // From here to the log-out there is a cache of this user.
        ask("LOGIN", user);
        byte[] image;
        List<?> receipt;
        try {
            if (picture != null) ask("PUT", user, profile, Files.readAllBytes(Path.of(picture)));
            image = (byte[]) ask("GET", user, profile);
            if (image != null) {
                Files.write(Path.of(copy), image);
                System.out.println(image.length + " bytes written to " + copy);
            }
        } finally {
            // Whatever went wrong before: this ends the cache.
            receipt = (List<?>) ask("LOGOUT", user);
        }
        // The receipt, an array of names and values in turn, says that nothing can be read any more.
        for (int i = 0; i < receipt.size(); i += 2)
            if (new String((byte[]) receipt.get(i)).equals("users"))
                System.out.println("caches ended: " + receipt.get(i + 1));
        try {
            ask("GET", user, profile);
        } catch (IOException error) {
            if (!error.getMessage().startsWith("NOLOGIN")) throw error;
            System.out.println("asked again: NOLOGIN");
            return image != null;
        }
        throw new IOException("the cache is still there");
    }

    public static void main(String[] words) {
        if (words.length != 3 && words.length != 4) end(2, "usage: Avatar USER PROFILE COPY [PICTURE]");
        String path = System.getenv().getOrDefault("THUMBCACHED_SOCKET", "/run/thumbcached/thumbcached.sock");
        try {
            String picture = words.length == 4 ? words[3] : null;
            if (!new Avatar(path).run(words[0], words[1], words[2], picture)) end(4, "there is no picture");
        } catch (IOException error) {
            end(1, error.toString());
        }
    }

    private static void end(int status, String message) {
        System.err.println(message);
        System.exit(status);
    }
}
