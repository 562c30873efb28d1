import java.util.ArrayList;
import java.util.List;

/** One named case: what it does, and the topics it needs before it starts. */
final class Case {
    interface Body {
        void run(Room room) throws Exception;
    }

    final String name;
    final Body body;
    int queues = 4;
    boolean consumes;
    final List<String> more = new ArrayList<>();

    Case(String name, Body body) {
        this.name = name;
        this.body = body;
    }

    Case queues(int number) {
        queues = number;
        return this;
    }

    /** Its group's retry topic is created too: a client that starts before this has a route learns of it up to 50 s late. */
    Case consumes() {
        consumes = true;
        return this;
    }

    /** A topic of this name as well, as it stands; RUN and CASE in it are replaced. */
    Case topic(String pattern) {
        more.add(pattern);
        return this;
    }
}
