/* The probe on librabbitmq: one order a line on stdin, one report a line on stdout (support/clients/probes.py says what they mean).
 *
 * The library has no events: whoever reads the next frame sees the answers, returns, closings and blockings himself. `listen`, heartbeats
 * while idle and floods are not asked of it.
 */
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 120 /* how long a busy machine takes is not what is tested */
#define MANY 64
#define LONG 1024

enum { OTHER = 1, LIMITED = 2, ANOTHER = 3 };

struct failure {
    char class[64];
    int code; /* 0: nothing failed */
    char text[LONG];
};

struct returned {
    int code;
    char text[LONG], key[LONG], body[LONG];
};

static struct {
    const char *seen[MANY];
    int seen_count;
    const char *commit;
    struct returned returns[MANY];
    int return_count;
    char blocked[MANY][LONG];
    int blocked_count, unblocked;
    struct failure channel, refused, connection;
    const char *other;
} report;

static void copy(char *to, amqp_bytes_t bytes) {
    size_t length = bytes.len < LONG - 1 ? bytes.len : LONG - 1;
    memcpy(to, bytes.bytes, length);
    to[length] = 0;
}

static void fail(struct failure *failure, const char *class, int code, amqp_bytes_t text) {
    snprintf(failure->class, sizeof failure->class, "%s", class);
    failure->code = code;
    copy(failure->text, text);
}

static void note_library(struct failure *failure, int error) {
    fail(failure, "library error", error, amqp_cstring_bytes(amqp_error_string2(error)));
}

/* What a method that nobody asked for says about a channel or the connection; answered where the protocol wants an answer. */
static void notice(amqp_connection_state_t connection, const amqp_frame_t *frame) {
    void *decoded = frame->payload.method.decoded;
    switch (frame->payload.method.id) {
    case AMQP_CHANNEL_CLOSE_METHOD: {
        amqp_channel_close_t *close = decoded;
        amqp_channel_close_ok_t ok;
        if (frame->channel == LIMITED) {
            fail(&report.channel, "channel.close", close->reply_code, close->reply_text);
        }
        amqp_send_method(connection, frame->channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
        break;
    }
    case AMQP_CONNECTION_CLOSE_METHOD: {
        amqp_connection_close_t *close = decoded;
        fail(&report.connection, "connection.close", close->reply_code, close->reply_text);
        break;
    }
    case AMQP_CONNECTION_BLOCKED_METHOD:
        if (report.blocked_count < MANY) {
            copy(report.blocked[report.blocked_count++], ((amqp_connection_blocked_t *)decoded)->reason);
        }
        break;
    case AMQP_CONNECTION_UNBLOCKED_METHOD:
        report.unblocked++;
        break;
    case AMQP_BASIC_RETURN_METHOD: {
        amqp_basic_return_t *back = decoded;
        amqp_message_t message;
        struct returned *returned = &report.returns[report.return_count];
        if (report.return_count < MANY) {
            report.return_count++;
            returned->code = back->reply_code;
            copy(returned->text, back->reply_text);
            copy(returned->key, back->routing_key);
            if (amqp_read_message(connection, frame->channel, &message, 0).reply_type == AMQP_RESPONSE_NORMAL) {
                copy(returned->body, message.body);
                amqp_destroy_message(&message);
            }
        }
        break;
    }
    default:
        break;
    }
}

/* Read until the broker's answer to the only outstanding publish of `channel` has come; its word for it. */
static const char *confirmation(amqp_connection_state_t connection, amqp_channel_t channel) {
    time_t deadline = time(NULL) + PATIENCE_S;
    while (time(NULL) < deadline) {
        struct timeval second = {1, 0};
        amqp_frame_t frame;
        int status = amqp_simple_wait_frame_noblock(connection, &frame, &second);
        if (status == AMQP_STATUS_TIMEOUT) {
            continue;
        }
        if (status != AMQP_STATUS_OK) {
            return amqp_error_string2(status);
        }
        if (frame.frame_type != AMQP_FRAME_METHOD) {
            continue;
        }
        if (frame.channel == channel && frame.payload.method.id == AMQP_BASIC_ACK_METHOD) {
            return "ack";
        }
        if (frame.channel == channel && frame.payload.method.id == AMQP_BASIC_NACK_METHOD) {
            return "basic.nack";
        }
        notice(connection, &frame);
        if (frame.channel == channel && frame.payload.method.id == AMQP_CHANNEL_CLOSE_METHOD) {
            return "channel.close";
        }
        if (report.connection.code) {
            return "connection.close";
        }
    }
    return "no answer";
}

static void failed_reply(amqp_connection_state_t connection, amqp_rpc_reply_t reply, struct failure *failure) {
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) {
        note_library(failure, reply.library_error);
    } else if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
        amqp_channel_close_t *close = reply.reply.decoded;
        amqp_channel_close_ok_t ok;
        fail(failure, "channel.close", close->reply_code, close->reply_text);
        amqp_send_method(connection, LIMITED, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
    } else if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
        amqp_connection_close_t *close = reply.reply.decoded;
        fail(failure, "connection.close", close->reply_code, close->reply_text);
    }
}

static const char *other_channel_lives(amqp_connection_state_t connection, const char *queue) {
    amqp_bytes_t name = amqp_cstring_bytes(queue);
    amqp_basic_publish(connection, OTHER, amqp_empty_bytes, name, 0, 0, NULL, amqp_cstring_bytes("other"));
    const char *word = confirmation(connection, OTHER);
    if (strcmp(word, "ack") != 0) {
        return word;
    }
    time_t deadline = time(NULL) + PATIENCE_S;
    while (time(NULL) < deadline) {
        amqp_message_t message;
        amqp_rpc_reply_t reply = amqp_basic_get(connection, OTHER, name, 1);
        if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
            return "get failed";
        }
        if (reply.reply.id != AMQP_BASIC_GET_OK_METHOD) {
            continue;
        }
        reply = amqp_read_message(connection, OTHER, &message, 0);
        if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
            return "no content";
        }
        int same = message.body.len == 5 && memcmp(message.body.bytes, "other", 5) == 0;
        amqp_destroy_message(&message);
        amqp_channel_open(connection, ANOTHER);
        if (amqp_get_rpc_reply(connection).reply_type != AMQP_RESPONSE_NORMAL) {
            return "no further channel";
        }
        amqp_channel_close(connection, ANOTHER, AMQP_REPLY_SUCCESS);
        return same ? "ok" : "got something else";
    }
    return "nothing consumed";
}

static amqp_rpc_reply_t log_in(amqp_connection_state_t connection, struct amqp_connection_info *where, int heartbeat) {
    amqp_table_entry_t capability = {.key = amqp_cstring_bytes("connection.blocked"), .value = {.kind = AMQP_FIELD_KIND_BOOLEAN}};
    capability.value.value.boolean = 1;
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes("capabilities"), .value = {.kind = AMQP_FIELD_KIND_TABLE}};
    entry.value.value.table.num_entries = 1;
    entry.value.value.table.entries = &capability;
    amqp_table_t properties = {1, &entry};
    return amqp_login_with_properties(connection, where->vhost, 0, AMQP_DEFAULT_FRAME_SIZE, heartbeat, &properties,
                                      AMQP_SASL_METHOD_PLAIN, where->user, where->password);
}

static void publish_all(amqp_connection_state_t connection, const char *mode, const char *key, const char *run, int count, int mandatory) {
    for (int number = 0; number < count && number < MANY; number++) {
        char id[LONG];
        snprintf(id, sizeof id, "%s-%d", run, number);
        amqp_basic_properties_t properties = {._flags = AMQP_BASIC_MESSAGE_ID_FLAG, .message_id = amqp_cstring_bytes(id)};
        int status = amqp_basic_publish(connection, LIMITED, amqp_empty_bytes, amqp_cstring_bytes(key), mandatory, 0, &properties,
                                        amqp_cstring_bytes(id));
        const char *word = "sent";
        if (status != AMQP_STATUS_OK) {
            word = amqp_error_string2(status);
        } else if (strcmp(mode, "confirm") == 0) {
            word = confirmation(connection, LIMITED);
        }
        report.seen[report.seen_count++] = word;
    }
}

static int is_closed(void) { return report.connection.code || report.channel.code; }

static void pause_for(amqp_connection_state_t connection, double seconds) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double until = now.tv_sec + now.tv_nsec / 1e9 + seconds;
    while (seconds > 0 && now.tv_sec + now.tv_nsec / 1e9 < until && !is_closed() &&
           !(report.blocked_count && report.blocked_count == report.unblocked)) {
        struct timeval tenth = {0, 100000};
        amqp_frame_t frame;
        if (amqp_simple_wait_frame_noblock(connection, &frame, &tenth) == AMQP_STATUS_OK && frame.frame_type == AMQP_FRAME_METHOD) {
            notice(connection, &frame);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
}

static const char *value(char *words, const char *name, const char *otherwise) {
    static char values[16][LONG];
    static int used;
    char line[4 * LONG];
    char *rest = line;
    snprintf(line, sizeof line, "%s", words);
    for (char *word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
        size_t length = strlen(name);
        if (strncmp(word, name, length) == 0 && word[length] == '=') {
            char *kept = values[used++ % 16];
            snprintf(kept, LONG, "%s", word + length + 1);
            return kept;
        }
    }
    return otherwise;
}

static void perform(char *line) {
    struct amqp_connection_info where;
    char *url = strdup(value(line, "url", ""));
    const char *mode = value(line, "mode", "confirm");
    const char *queue = value(line, "free", "");
    int other_first = atoi(value(line, "other_first", "0"));
    memset(&report, 0, sizeof report);
    report.commit = "";
    report.other = "";
    amqp_parse_url(url, &where);
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    int status = amqp_socket_open(socket, where.host, where.port);
    if (status != AMQP_STATUS_OK) {
        note_library(&report.refused, status);
        goto done;
    }
    amqp_rpc_reply_t reply = log_in(connection, &where, atoi(value(line, "heartbeat", "60")));
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        failed_reply(connection, reply, &report.refused);
        goto done;
    }
    amqp_channel_open(connection, OTHER);
    amqp_confirm_select(connection, OTHER);
    amqp_channel_open(connection, LIMITED);
    if (strcmp(mode, "confirm") == 0) {
        amqp_confirm_select(connection, LIMITED);
    } else if (strcmp(mode, "tx") == 0) {
        amqp_tx_select(connection, LIMITED);
    }
    publish_all(connection, mode, value(line, "key", ""), value(line, "run", ""), atoi(value(line, "count", "1")),
                atoi(value(line, "mandatory", "0")));
    if (strcmp(mode, "tx") == 0) {
        amqp_tx_commit(connection, LIMITED);
        reply = amqp_get_rpc_reply(connection);
        report.commit = reply.reply_type == AMQP_RESPONSE_NORMAL ? "committed" : "error";
        failed_reply(connection, reply, &report.channel);
    }
    if (other_first) {
        report.other = other_channel_lives(connection, queue);
    }
    pause_for(connection, atof(value(line, "linger", "0")));
    if (!is_closed()) {
        amqp_queue_declare(connection, LIMITED, amqp_cstring_bytes(queue), 1, 0, 0, 0, amqp_empty_table);
        failed_reply(connection, amqp_get_rpc_reply(connection), &report.channel);
    }
    if (!other_first) {
        report.other = other_channel_lives(connection, queue);
    }
    if (report.connection.code) {
        report.channel = report.connection;
    } else {
        amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
    }
done:
    amqp_destroy_connection(connection);
    free(url);
}

static void say(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') {
            printf("\\%c", *text);
        } else if ((unsigned char)*text < ' ') {
            printf("\\u%04x", *text);
        } else {
            putchar(*text);
        }
    }
    putchar('"');
}

static void say_failure(const char *name, const struct failure *failure, const char *otherwise) {
    printf(", \"%s\": ", name);
    if (!failure->code) {
        printf("%s", otherwise);
        return;
    }
    printf("{\"class\": ");
    say(failure->class);
    printf(", \"code\": %d, \"text\": ", failure->code);
    say(failure->text);
    putchar('}');
}

static void say_report(void) {
    printf("{\"seen\": [");
    for (int number = 0; number < report.seen_count; number++) {
        printf(number ? ", " : "");
        say(report.seen[number]);
    }
    printf("], \"returns\": [");
    for (int number = 0; number < report.return_count; number++) {
        const struct returned *one = &report.returns[number];
        printf("%s{\"code\": %d, \"text\": ", number ? ", " : "", one->code);
        say(one->text);
        printf(", \"key\": ");
        say(one->key);
        printf(", \"body\": ");
        say(one->body);
        putchar('}');
    }
    printf("], \"blocked\": [");
    for (int number = 0; number < report.blocked_count; number++) {
        printf(number ? ", " : "");
        say(report.blocked[number]);
    }
    printf("], \"unblocked\": %d, \"heard\": 0, \"longest_gap_s\": 0, \"outcomes\": \"\", \"commit\": ", report.unblocked);
    say(report.commit);
    printf(", \"other\": ");
    say(report.other);
    say_failure("channel", &report.channel, "\"open\"");
    say_failure("refused", &report.refused, "null");
    printf("}\n");
    fflush(stdout);
}

int main(void) {
    char line[4 * LONG];
    while (fgets(line, sizeof line, stdin)) {
        perform(line);
        say_report();
    }
    return 0;
}
