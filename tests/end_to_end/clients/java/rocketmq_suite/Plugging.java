import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Frames on a socket, without the client's own machinery around them. */
final class Plugging {
    private static final int GET_MAX_OFFSET = 30;
    private static final int NOBODY_KNOWS = 31_999;

    static void register(Cases cases) {
        cases.add("raw_unknown_code", Plugging::unknownCode);
        cases.add("raw_half_close", Plugging::halfClose);
        cases.add("raw_pipelined", Plugging::pipelined);
        cases.add("raw_answer_nobody_waits_for", Plugging::strayAnswer);
        cases.add("raw_byte_by_byte", Plugging::byteByByte);
    }

    private static Socket connect(Room room) throws IOException {
        String[] address = room.setup.broker().split(":");
        Socket socket = new Socket(address[0], Integer.parseInt(address[1]));
        socket.setSoTimeout(Setup.PATIENCE_MS);
        socket.setTcpNoDelay(true);
        return socket;
    }

    private static RemotingCommand request(Room room, int code) {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        request.addExtField("topic", room.topic);
        request.addExtField("queueId", "0");
        RPCHook signature = room.setup.credentials();
        if (signature != null) {
            signature.doBeforeRequest(room.setup.broker(), request);
        }
        return request;
    }

    private static byte[] encoded(RemotingCommand command) {
        ByteBuffer buffer = command.encode();
        return Arrays.copyOf(buffer.array(), buffer.limit());
    }

    private static RemotingCommand answer(Socket socket) throws Exception {
        DataInputStream input = new DataInputStream(socket.getInputStream());
        byte[] frame = new byte[input.readInt()];
        input.readFully(frame);
        return RemotingCommand.decode(frame);
    }

    private static void unknownCode(Room room) throws Exception {
        try (Socket socket = connect(room)) {
            RemotingCommand request = request(room, NOBODY_KNOWS);
            socket.getOutputStream().write(encoded(request));
            RemotingCommand answer = answer(socket);
            room.expect("for this request", true, answer.getOpaque() == request.getOpaque());
            room.fact("code", answer.getCode());
            room.fact("remark", answer.getRemark());
            room.fact("flag", answer.getFlag());
        }
    }

    /** The client has said everything: the broker closes when it has read that. */
    private static void halfClose(Room room) throws Exception {
        try (Socket socket = connect(room)) {
            socket.getOutputStream().write(encoded(request(room, GET_MAX_OFFSET)));
            room.expect("code", 0, answer(socket).getCode());
            socket.shutdownOutput();
            String end;
            try {
                end = answer(socket).toString();
            } catch (EOFException closed) {
                end = "closed";
            }
            room.expect("then", "closed", end);
        }
    }

    private static void pipelined(Room room) throws Exception {
        try (Socket socket = connect(room)) {
            Set<Integer> asked = new TreeSet<>();
            ByteBuffer all = ByteBuffer.allocate(1 << 20);
            for (int number = 0; number < 300; number++) {
                RemotingCommand request = request(room, GET_MAX_OFFSET);
                asked.add(request.getOpaque());
                all.put(encoded(request));
            }
            socket.getOutputStream().write(all.array(), 0, all.position());
            Set<Integer> answered = new TreeSet<>();
            Set<String> answers = new TreeSet<>();
            for (int number = 0; number < 300; number++) {
                RemotingCommand answer = answer(socket);
                answered.add(answer.getOpaque());
                answers.add(answer.getCode() + " " + answer.getExtFields());
            }
            room.expect("all are answered once", true, answered.equals(asked));
            room.fact("answers", answers);
        }
    }

    private static void strayAnswer(Room room) throws Exception {
        try (Socket socket = connect(room)) {
            RemotingCommand stray = RemotingCommand.createResponseCommand(0, "nobody asked");
            stray.setOpaque(987_654);
            socket.getOutputStream().write(encoded(stray));
            socket.getOutputStream().write(encoded(request(room, GET_MAX_OFFSET)));
            room.expect("the request after it", 0, answer(socket).getCode());
        }
    }

    private static void byteByByte(Room room) throws Exception {
        try (Socket socket = connect(room)) {
            for (byte each : encoded(request(room, GET_MAX_OFFSET))) {
                socket.getOutputStream().write(each);
            }
            room.expect("code", 0, answer(socket).getCode());
        }
    }
}
