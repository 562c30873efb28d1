import java.lang.reflect.Method;
import java.util.Iterator;
import java.util.Map;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** RocketMQ's header classes by their simple names: 4.9 and 5.x keep them in different packages. */
final class Headers {
    private static final String[] PACKAGES = {
        "org.apache.rocketmq.remoting.protocol.header.", "org.apache.rocketmq.remoting.protocol.header.namesrv.",
        "org.apache.rocketmq.common.protocol.header.", "org.apache.rocketmq.common.protocol.header.namesrv.",
    };

    private Headers() {
    }

    /** The class, or null where this version does not have it. */
    static Class<? extends CommandCustomHeader> find(String name) {
        for (String place : PACKAGES) {
            try {
                return Class.forName(place + name).asSubclass(CommandCustomHeader.class);
            } catch (ClassNotFoundException elsewhere) {
                // in the next package
            }
        }
        return null;
    }

    /** A header with these values; those that this version has no setter for are taken out of `values`. Null where there is none. */
    static CommandCustomHeader make(String name, Map<String, Object> values) {
        Class<? extends CommandCustomHeader> found = name == null ? null : find(name);
        if (found == null) {
            return null;
        }
        try {
            CommandCustomHeader header = found.getDeclaredConstructor().newInstance();
            for (Iterator<Map.Entry<String, Object>> entries = values.entrySet().iterator(); entries.hasNext();) {
                Map.Entry<String, Object> entry = entries.next();
                Method setter = setter(found, entry.getKey());
                if (setter == null || entry.getValue() == null) {
                    entries.remove();
                } else {
                    setter.invoke(header, entry.getValue());
                }
            }
            return header;
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(name + ": " + error, error);
        }
    }

    private static Method setter(Class<?> found, String field) {
        String bare = field.startsWith("is") ? field.substring(2) : field;
        for (String name : new String[] {field, bare}) {
            String wanted = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
            for (Method method : found.getMethods()) {
                if (method.getName().equals(wanted) && method.getParameterCount() == 1) {
                    return method;
                }
            }
        }
        return null;
    }

    /** What the broker's processor takes from `command`'s header: the value a getter of the decoded header gives. */
    static CommandCustomHeader decode(RemotingCommand command, String name) throws Exception {
        return command.decodeCommandCustomHeader(find(name));
    }

    static Object get(Object header, String getter) throws ReflectiveOperationException {
        return header.getClass().getMethod(getter).invoke(header);
    }
}
