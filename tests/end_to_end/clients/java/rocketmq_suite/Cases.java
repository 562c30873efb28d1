import java.util.ArrayList;
import java.util.List;

/** All cases, in the order in which they are started: the slowest are to come first. */
final class Cases {
    private final List<Case> all = new ArrayList<>();

    Case add(String name, Case.Body body) {
        Case added = new Case(name, body);
        all.add(added);
        return added;
    }

    List<Case> chosen(List<String> names) {
        List<Case> chosen = new ArrayList<>();
        for (Case each : all) {
            if (names.contains(each.name)) {
                chosen.add(each);
            }
        }
        if (chosen.size() != names.size()) {
            throw new IllegalArgumentException("there are not all of these cases: " + names);
        }
        return chosen;
    }
}
