// One image from thumbcached, in Java 17, without a library (apt install openjdk-17-jdk-headless).
// Jedis and Lettuce need extra code for Unix sockets, which Java itself supports since version 16.
//
//   java Avatar.java USER PROFILE COPY [IMAGE]
//
// Logs USER in, stores the file IMAGE, if given, writes the image of PROFILE to the file COPY, logs USER out, and
// verifies the logout. Without IMAGE, the daemon downloads the image. THUMBCACHED_SOCKET names the daemon's socket.
// Exit status: 0 success, 4 no image, 2 invalid usage, 1 any other error.
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

    /** Sends a request, an array of byte strings with length prefixes, and returns the reply. */
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

    /** Reads a reply, whose first character is its type: String, Long, byte[], List or null. Throws error replies. */
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

    /** The part that corresponds to the other examples. */
    boolean run(String user, String profile, String copy, String imageFile) throws IOException {
        // The cache of this user exists until the logout.
        ask("LOGIN", user);
        byte[] image;
        List<?> receipt;
        try {
            if (imageFile != null) ask("PUT", user, profile, Files.readAllBytes(Path.of(imageFile)));
            image = (byte[]) ask("GET", user, profile);
            if (image != null) {
                Files.write(Path.of(copy), image);
                System.out.println(image.length + " bytes written to " + copy);
            }
        } finally {
            // Ends the cache even after an error.
            receipt = (List<?>) ask("LOGOUT", user);
        }
        // The receipt, an array of names and values, confirms that nothing can be read any more.
        for (int i = 0; i < receipt.size(); i += 2)
            if (new String((byte[]) receipt.get(i)).equals("users"))
                System.out.println("caches ended: " + receipt.get(i + 1));
        try {
            ask("GET", user, profile);
        } catch (IOException error) {
            if (!error.getMessage().startsWith("NOLOGIN")) throw error;
            System.out.println("after logout: NOLOGIN");
            return image != null;
        }
        throw new IOException("the cache still exists");
    }

    public static void main(String[] words) {
        if (words.length != 3 && words.length != 4) end(2, "usage: Avatar USER PROFILE COPY [IMAGE]");
        String path = System.getenv().getOrDefault("THUMBCACHED_SOCKET", "/run/thumbcached/thumbcached.sock");
        try {
            String imageFile = words.length == 4 ? words[3] : null;
            if (!new Avatar(path).run(words[0], words[1], words[2], imageFile)) end(4, "no image");
        } catch (IOException error) {
            end(1, error.toString());
        }
    }

    private static void end(int status, String message) {
        System.err.println(message);
        System.exit(status);
    }
}
