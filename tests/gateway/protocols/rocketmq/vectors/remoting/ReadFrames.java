import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Says what the broker reads: takes a file of frames without their first length, in hex, a line each; writes a file of JSON, a line each.
 *
 * {"code", "flag", "opaque", "ext", "body": bytes}, and for sends and send-backs what their processor takes out of the header: {"send":
 * {"topic", "group", "batch"}}, which is null where it throws. `null` where the frame cannot be decoded: the broker closes the connection.
 */
public final class ReadFrames {
    private ReadFrames() {
    }

    private static Map<String, Object> send(RemotingCommand command) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        if (command.getCode() == 36) {
            CommandCustomHeader header = Headers.decode(command, "ConsumerSendMsgBackRequestHeader");
            found.put("topic", null);
            found.put("group", Headers.get(header, "getGroup"));
            found.put("batch", false);
            return found;
        }
        boolean full = command.getCode() == 10 || command.getCode() == 324;
        CommandCustomHeader header = Headers.decode(command, full ? "SendMessageRequestHeader" : "SendMessageRequestHeaderV2");
        found.put("topic", Headers.get(header, full ? "getTopic" : "getB"));
        found.put("group", Headers.get(header, full ? "getProducerGroup" : "getA"));
        Object batch = Headers.get(header, full ? "isBatch" : "isM");
        found.put("batch", batch != null && (Boolean) batch);
        return found;
    }

    private static String read(byte[] frame) {
        RemotingCommand command;
        try {
            command = RemotingCommand.decode(Unpooled.wrappedBuffer(frame));
        } catch (Exception broken) {
            return "null";
        }
        if (command == null) {
            return "null";
        }
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("code", command.getCode());
        found.put("flag", command.getFlag());
        found.put("opaque", command.getOpaque());
        found.put("ext", command.getExtFields());
        found.put("body", command.getBody() == null ? 0 : command.getBody().length);
        int code = command.getCode();
        if (code == 10 || code == 310 || code == 320 || code == 324 || code == 325 || code == 36) {
            try {
                found.put("send", send(command));
            } catch (Exception refused) {
                found.put("send", null);
            }
        }
        return Json.text(found);
    }

    public static void main(String[] arguments) throws Exception {
        List<String> out = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            out.add(read(ByteBufUtil.decodeHexDump(line)));
        }
        Files.write(Path.of(arguments[1]), out);
    }
}
