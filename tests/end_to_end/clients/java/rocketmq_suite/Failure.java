import java.util.concurrent.Callable;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/** What the application sees when something is refused. */
final class Failure {
    /** The code of the exception; 0 where there was none, -1 where it carries none. */
    static int code(Callable<?> action) {
        try {
            action.call();
            return 0;
        } catch (MQBrokerException error) {
            return error.getResponseCode();
        } catch (MQClientException error) {
            return error.getResponseCode();
        } catch (Exception error) {
            return -1;
        }
    }

    /** The kind of exception and the first line of its text. */
    static String words(Callable<?> action) {
        try {
            action.call();
            return "none";
        } catch (Exception error) {
            return error.getClass().getSimpleName() + ": " + String.valueOf(error.getMessage()).split("\n")[0];
        }
    }
}
