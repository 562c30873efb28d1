// Says what the broker's own decoder makes of JSON headers: reads one per line in hex on stdin, writes one JSON value per line.
//
//   javac -cp 'lib/*' ReadHeaders.java && java -cp .:'lib/*' ReadHeaders < headers.hex      (lib: rocketmq-client 5.3.3 from Maven Central)

import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

public class ReadHeaders {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = lines.readLine()) != null) {
            byte[] header = new byte[line.length() / 2];
            for (int i = 0; i < header.length; i++) {
                header[i] = (byte) Integer.parseInt(line.substring(2 * i, 2 * i + 2), 16);
            }
            String read = "null";
            try {
                RemotingCommand command = RemotingSerializable.decode(header, RemotingCommand.class);
                if (command != null) {
                    JSONObject fields = new JSONObject(true);
                    fields.put("code", command.getCode());
                    fields.put("flag", command.getFlag());
                    fields.put("extFields", command.getExtFields());
                    read = fields.toJSONString();
                }
            } catch (Exception broken) {
                // the broker closes the connection
            }
            System.out.println(read);
        }
    }
}
