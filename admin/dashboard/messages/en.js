// English. Keys are the same in every language; tests hold that none is missing.
export default {
  // the frame
  overview: "Overview", topics: "Topics", connections: "Connections", brokers: "Brokers", changes: "Changes", quotas: "Quotas", configuration: "Configuration",
  screens: "Screens", skip: "Skip to content", menu: "Menu", language: "Language", theme: "Theme", light: "Light", dark: "Dark", auto: "As the system",
  sign_out: "Sign out", signed_out: "You are signed out.", session_over: "The session is over. Sign in again.", api_description: "API description",
  link_lost: "The connection to the gateway was lost {since} ago. What you see is old. Trying again …",
  role_viewer: "Viewer: may look", role_operator: "Operator: may change limits and close connections", role_admin: "Admin: may do everything",
  missing_title: "There is no such screen", to_overview: "To the overview", loading: "Loading …", nothing_here: "Nothing here.", actions: "Actions",
  unreachable: "The gateway cannot be reached.", forbidden: "Your role does not permit this.", request: "request", api_title: "The same from the API, as JSON",
  // signing in
  sign_in: "Sign in", sign_in_title: "Sign in to sluice", token: "Token", token_hint: "It is sent once. The browser then keeps a session that ends by itself.",
  token_needed: "Paste a token.", token_wrong: "This token is not known here, or it has expired.", too_many_attempts: "Too many attempts. Try again in {seconds} s.",
  where_token: "Where is a token?", where_token_1: "The gateway’s first start writes one with the role admin into its state directory:",
  where_token_2: "For each person a token of their own is better. The roles are viewer, operator and admin:",
  // units
  unit_s: "s", unit_min: "min", unit_h: "h", unit_d: "d", no_end: "no end", unlimited: "unlimited", at_a_time: "{n} at a time",
  // overview
  ready: "ready", not_ready: "not ready", draining: "draining", broker_reachable: "broker reachable", broker_not_reachable: "broker unreachable", memory_full: "memory full",
  live_changes: "live changes: {n}", without_end: " ({n} without end)", no_live_changes: "no live changes", quotas_of: "quotas of {date}", no_quotas: "no quotas", rules_rev: "revision {n}",
  received: "In", passed: "Passed", waiting: "Held", refused: "Refused", added_p99: "p99 added", loop_lag: "Loop lag", memory: "Memory", limit: "Limit",
  alarms: "Needs attention", all_calm: "Nothing is refused, and nothing else is wrong.", and_more: "and {n} more",
  alarm_topic: "over its limit{whose} for {since}: {rate}/s of {limit}, {share} refused{who}", alarm_held: "over its limit{whose} for {since}: {rate}/s of {limit}{who}", alarm_who: " · {client}{user} {share} of it",
  broker_blocks: "{listener}: the broker says connection.blocked on {n} connections", memory_step: "Memory is short: {doing}", lag_high: "The gateway’s event loop is late by {lag}", fleet: "part of a fleet",
  not_ready_because: "Not ready: {reason}", broker_unreachable: "{listener}: the broker {upstream} cannot be reached. {error}", broker_busy: "{listener}: the broker says that it is busy ({what})",
  look: "look", limit_it: "limit …", worst_now: "Worst now", all_topics: "all {n} topics", no_traffic: "No message has come lately.", traffic: "Traffic",
  topic: "Topic", rate: "Rate", used: "Used", wait: "Wait", since: "Since", who: "Who", last_change: "Last change", range: "Range", range_15m: "15 min", range_24h: "24 h",
  live_now: "Live changes in force", what: "What", by: "By", reason: "Reason", ends: "Ends", ends_in: "ends in {time}", changes_marked: "change",
  chart_spoken: "{label}: now {received} come, {passed} pass, {refused} are refused. At most {peak} came. Changes in this time: {marks}.",
  origin_override: "live", origin_file: "file", origin_quota: "quota", origin_quota_hour: "quota, this hour", origin_default: "default",
  // topics
  search: "Search", search_hint: "part of a name", topics_all: "{n} topics", topics_found: "{n} of {all} topics", none_found: "No topic has this in its name.",
  limit_per_second: "Limit per second", last_wait: "Last wait", last: "Last limited", last_limited: "Last limited", spooled: "Spooled", mode: "Mode", origin: "Origin", edit: "Edit",
  mode_enforce: "enforced", mode_shadow: "shadow", mode_off: "off", consume: "consume",
  // one topic
  page_for_team: "page for the team", no_series: "There is no history of this topic yet: it is kept for the busiest topics.", limits_in_force: "Limits in force", no_limit: "No limit holds for it.",
  worst_clients: "Clients refused most", nobody_refused: "No client is refused.", client: "Client", user: "User", client_name: "Name", library: "Library", refused_of: "Refused of sent",
  per_topic: "for this topic", per_rule: "for all topics of the rule together", per_client: "for the client", per_user: "for the user", per_group: "for the group", per_listener: "for the listener",
  per_vhost: "for the virtual host", per_exchange: "for the exchange", per_namespace: "for the namespace", per_queue: "for the queue",
  rule_named: "rule {rule}{place}", rule_says: ", which says {limit}", set_live: "Changed live by {by} at {at}, over {rule}", holds_until: "until {at}, {time} from now", holds_on: "until it is taken back",
  set_quota: "Learned quota of {date}, over {rule}", published_by: "published by {by} at {at}", raised_this_hour: "raised for this hour by the last hour’s demand",
  set_file: "From {rule}, which names it", set_default: "From {rule}, as for all that it matches",
  action_shadow: "Nothing is refused: it is only counted.", action_consume: "Deliveries wait for their turn.", action_reject_amqp: "What is over it is nacked; on a channel without confirms it waits.",
  action_reject_rocketmq: "What is over it is refused with code {code}.", action_delay: "What is over it waits up to {max}, then it is refused.", action_block: "The connection is not read until the message may pass.",
  action_drop: "What is over it is swallowed and counted.", action_close: "The channel or connection is closed.", action_spool: "Publishers go on; what is over it waits on the gateway’s disk, and its answer comes later.",
  usage_line: "{passed} passed, {refused} refused, {held} held", breaker_open: "breaker open, {time} at a time",
  why_this: "Why this limit, and no other?", why_holds: "Rule {rule} ({place}) holds: {limit}.", why_none: "No rule limits it here.", why_lost: "{rule} ({place}), {limit}: {reason}", why_missed: "{rule} ({place}) does not match: {reason}",
  // changing a limit
  change_limit: "Change the limit", presets: "Presets", presets_line: "One of these, or your own:", preset_hour: "{rate} – as in the last hour (p95)", preset_twice: "{rate} – twice as now", preset_half: "{rate} – half as now",
  messages_limit: "Messages", messages_hint: "a number and its unit: 500/s, 30k/min", bytes_limit: "Bytes", bytes_hint: "10MiB/s", limit_bytes_too: "limit bytes, too", for_how_long: "For", reason_hint: "for the history, and for the team",
  time_30m: "30 minutes", time_2h: "2 hours", time_8h: "8 hours", time_1d: "a day", time_7d: "a week", until_taken_back: "until it is taken back",
  preview_wait: "The preview shows what would change.", preview_same: "This changes nothing.", would_have_refused: "It would have refused {n} of {of} messages in the last {time}.", topics_affected: "{n} topics affected",
  apply: "Apply", apply_for: "Apply for {time}", cancel: "Cancel", take_back: "Take the live change back", saved: "Saved: {limit} is in force.", in_force: "In force: {limit}", undo: "Undo", undone: "Undone: it is as it was before.",
  taken_back: "Taken back: the rule holds again.", see_history: "See the history", reason_over: "over its limit since {since}", reason_undo: "undone on the dashboard", reason_taken_back: "taken back on the dashboard",
  conflict_title: "Somebody else was faster", conflict_text: "This limit has been changed since you opened it. Nothing of yours is saved yet.", conflict_theirs: "In force now", conflict_yours: "Yours", keep_theirs: "Keep theirs", apply_mine: "Apply mine over it", go_on_editing: "Go on editing", no_live_change: "No live change.",
  // connections
  listener: "Listener", state: "State", bottleneck: "Bottleneck", age: "Age", close: "Close", sorted_by: "Sorted by", connections_n: "{n} connections", no_connections: "No client is connected.", search_connections: "address, user, name …",
  sort_wait: "held", sort_backlog: "backlog", sort_forwarded: "passed", sort_blocked: "blocked", sort_age: "age", sort_name: "number",
  state_running: "running", state_flow: "flow", state_throttled: "throttled", state_blocked: "blocked", state_draining: "draining",
  state_running_means: "Messages pass as they come.", state_flow_means: "It is not read at the moment, because what is behind it needs time.", state_throttled_means: "A limit holds messages of it back.", state_blocked_means: "The broker has blocked it.", state_draining_means: "It is about to be closed; what is in flight is finished.",
  bottleneck_none: "none", bottleneck_limit: "a limit:", bottleneck_client: "the client does not read", bottleneck_broker: "the broker takes its time", bottleneck_broker_blocked: "the broker blocks it", bottleneck_memory: "the gateway’s memory", bottleneck_limiter: "the limiter", bottleneck_spool: "the spool is full or slow",
  close_title: "Close the connection of {client}?", close_text: "It is closed in the way of its protocol. Most clients connect again at once.", closed: "The connection is closed.", connection_named: "Connection {id}", connection_gone: "This connection is not there any more.", all_fields: "All fields",
  // brokers
  brokers_title: "Brokers and listeners", not_tried: "not tried yet", busy_line: "The broker has said that it is busy, since the start: {what}", listens_on: "Listens on", places: "Places", per_address: "At most per address", per_user_most: "At most per user", opened: "Opened so far", closed_by_cause: "Closed, by cause", refused_by_cause: "Refused, by cause",
  tls_clients: "TLS of clients", tls_broker: "TLS to the broker", tls_off: "off", tls_on: "on", certificate_ends: "the certificate ends {at}, in {time}", addresses_of: "Broker addresses of {name}", caps_of: "Shared caps of {name}", address: "Address", error: "Error", no_addresses: "No address.", rule: "Rule",
  upstream_up: "up", upstream_down: "down", upstream_held: "held back", upstream_unknown: "not tried",
  // changes
  revision_n: "Revision {n}", search_changes: "who, why, what", no_changes: "Nothing has been changed live yet.", none_found_changes: "No change has this in it.", older: "Older ones", roll_back: "Roll back", roll_back_before: "Roll back to before this",
  roll_back_title: "Undo revision {n} and all after it?", roll_back_text: "The state as of revision {n} is restored, as a new revision. This is what changes:", rolled_back: "Rolled back.", taken_back_word: "taken back", set_word: "set", changed_word: "changed",
  // quotas
  in_force_now: "In force", tried: "Tried", none_published: "None is published.", quotas_n: "{n} quotas", computed_at: "computed {at}", realised_line: "{refused} of {offered} messages refused since {since}: {share}", target_line: "target {share}", refused_most: "refused most", quotas_back: "Put the quotas before these back", quotas_back_text: "Only the quotas change; live changes stay as they are.",
  quotas_apply: "Put these in force", quotas_apply_text: "The snapshot that is tried replaces the one in force, at once and for all topics.", trial_end: "End the trial", quotas_per_topic: "Quotas per topic", status: "Status", evidence: "Evidence", to_topic: "the topic, its traffic and its limit", candidates: "Candidates of rules", candidate: "Candidate", would_refuse: "Would refuse", promote: "Make it the limit", promote_text: "The candidate {limit} of rule {rule} becomes its limit.", no_candidates: "No rule has a candidate.",
  // configuration
  setting: "Setting", value: "Value", effective_values: "Effective values", defaults_too: "defaults, too", none_found_settings: "No setting has this in it.", origin_default_value: "default", origin_environment: "environment", origin_flag: "flag", origin_live: "set live", last_reload_good: "configuration loaded", last_reload_bad: "last reload failed", up_for: "up for {time}", needs_restart: "Needs a restart:",
  reload: "Reload", reload_text: "The files are read again. The dry run says what would change, and changes nothing.", reload_try: "Dry run", reload_now: "Reload now", reload_would: "The dry run found no fault.", reloaded: "Reloaded.", takes_effect: "Takes effect:", nothing_changes: "Nothing changes.",
  log_level: "Log level", level: "Level", level_until: "until {at}, then {level}", level_restart: "until the next start, then {level}", as_configured: "as configured", set_level: "Set", level_back: "As configured", time_10min: "10 minutes", time_1h: "1 hour", until_restart: "until the next start",
  tokens: "Tokens", token_new: "New token", token_make: "Make the token", role: "Role", token_expires: "Expires", token_expires_hint: "90d, or empty: never", token_made: "Token of {name}. It is shown this once:", token_hide: "I have it", last_used: "Last used", revoke: "Revoke", revoke_title: "Revoke the token {name}?", revoke_text: "Its sessions and streams end within a second.", token_origin_state: "first start", token_origin_live: "made live", token_origin_file: "file",
  support_bundle: "Support bundle", support_bundle_text: "All that helps to find a fault, without secrets, in one file:",
  // a team's own topic
  verdict_refused: "limited now", verdict_refused_text: "{share} of what is sent is refused{since}.", since_at: ", since {at}", verdict_held: "held now", verdict_held_text: "{n} messages wait for their turn.", verdict_within: "within its limit", verdict_within_text: "Nothing is refused.", verdict_unseen: "not seen", verdict_unseen_text: "No message of this topic has come lately.",
  refused_24h: "{n} refused in the last 24 hours", refused_15m: "{n} refused in the last 15 minutes", refused_by_client: "Refused, by client", refused_now: "Now", refused_all: "In all", what_you_see: "What your library shows", your_library: "Your library", as_connected: "as connected: {names}", choose: "choose …", bite_refused: "when refused", bite_system_busy: "when refused", bite_held: "when held", bite_spooled: "when spooled", bite_blocked: "when blocked", bite_dropped: "when dropped", bite_closed: "when closed", bite_consuming: "when consuming", to_do: "To do", advice_in_english: "",
  all_details: "all details", why_this_limit: "Why this limit", what_to_do: "What to do", nothing_broken: "Nothing is broken. The topic is over its limit, and the gateway says so instead of letting one topic take the broker away from everybody. What was refused is not in the broker; it may be sent again after a pause.",
  step_loop: "Look for a loop. The most frequent cause is a retry without a pause: repeat after a pause that grows (0.1 s, 0.2 s, 0.4 s …), and give up after a while.", step_confirms: "Publish with confirms. Without them nothing is refused: the channel is held until each message’s turn has come.", step_spread: "Spread a batch. The limit ({limit}) is a rate with a burst; send at the rate that you need over the hour.", step_ask: "Ask for more, and say why and until when. Quotas that are learned follow a lasting growth by themselves within days.", step_action: "Ask for another answer: a rule may hold messages instead of refusing them.", whom_to_ask: "Whom to ask: whoever runs the gateway {gateway}. Send them this page’s address.",
};
