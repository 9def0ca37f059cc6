/** The first platform user, and a user of the org; both log in with the password in the file `password`. */
export type Person = "root" | "ada";

/** One command line that a server answers. */
export interface CliCase {
  /** `{p}` is a word of the pass alone; `{name}` is what an earlier line showed. */
  line: string;
  /** The id that the answer has first, for later lines. */
  as?: string;
  /** By a session of this person instead of the org's admin key. */
  by?: Person;
  /** It goes on until ^C, which comes after its first words. */
  follows?: true;
}

const lines = (text: string): CliCase[] =>
  text
    .trim()
    .split("\n")
    .map((line) => {
      const [words = "", as] = line.trim().split(/ => (?=\w+$)/);
      return { line: words, ...(as !== undefined && { as }) };
    });

const by = (person: Person, theirs: readonly CliCase[]): CliCase[] =>
  theirs.map((one) => ({ ...one, by: person }));

/**
 * A line of every command that asks a server, in an order in which each finds what it needs. What no command makes is there
 * before (`cli-furnished.ts`): `{run}` has completed, `{asleep}` has the finished step `{step}`, and so on.
 */
export const cliCases: readonly CliCase[] = [
  ...lines(`
    function register made-{p} --triggers [{"event":"made-{p}.asked"}]
    function register made-{p} --attributes [{"name":"shade_{p}","path":"shade"}] --triggers [{"event":"made-{p}.asked"}]
    function list
    function get made-{p}
    function history made-{p}
    function at made-{p} --version 1
    function rollback made-{p} --to 1 --yes
    function pause made-{p}
    function activate made-{p}
    emit made-{p}.asked --data {"n":1}
    invoke made-{p} --no-wait
    runs
    run list --limit 5
    run get {run}
    run steps {run}
    run streams {run}
    run timeline {run}
    run logs {run}
    run signal {waiting} hello --data {"n":1}
    run signals {waiting}
    run outputs {run}
    logs {run}
    inspect {run}
    why {failed}
    run pause {waiting}
    run paused-state {waiting}
    run resume {waiting}
    resume {failed}
    run cancel {waiting} --reason done
    cancel {failed}
    run cancel-subtree {waiting} --yes
    run pause {asleep}
    run inject {asleep} {step} --output {"n":2}
    run patch-step {step} --output {"n":3}
    run cancel {asleep} --reason done
    run redact-step {step} --reason asked --yes
    run redact {asleep} --yes
    run delete {asleep} --yes
    run delete-many --function none-{p} --statuses completed --yes
    error list --function broken-{p} => errorGroup
    error get {errorGroup}
    repair list
    repair preview --action cancel --filter {"functionId":"made-{p}"}
    repair start --action cancel --filter {"functionId":"made-{p}"} --yes => repair
    repair get {repair}
    repair items {repair}
    repair start --action cancel --filter {"functionId":"many-{p}"} --yes => long
    repair pause {long}
    repair continue {long}
    repair stop {long}
    replay preview made-{p} --events {"pattern":"made-{p}.asked"}
    replay start made-{p} --events {"pattern":"made-{p}.asked"} --yes
    worker list
    deployments
    attribute list
    attribute delete shade_{p} --yes
    debounce list
    batch list
    batch list --function made-{p}
    debounce cancel --env-id env_default --function none --key none --yes
    schedule list
    circuit-breaker list
    circuit-breaker reset 'none|none'
    function archive made-{p} --yes
    function delete made-{p} --yes
    event list --limit 3 => event
    event get {event}
    event names
    emit later-{p} --delay-ms 3600000
    event delayed --limit 1 => delayed
    event cancel-delayed {delayed}
    event cause run {run}
    event schema register shaped-{p} --schema {"type":"object"}
    event schema register shaped-{p} --version 2 --schema {"x-upcast":[{"op":"default","path":"/a","value":1}]}
    event upcast shaped-{p} --from 1 --to 2 --data {}
    event schema list
    event schema get shaped-{p}
    event schema check
    event schema set-mode warn
    event schema set-mode off
    event schema delete shaped-{p} 2 --yes
    event schema delete shaped-{p} 1 --yes
    stream append order-{p} --type order --event placed --data {"n":1} => placed
    stream list
    stream info order-{p}
    stream read order-{p}
    stream history order-{p}
    stream redact order-{p} {placed} --yes
    stream append order-{p} --type order --event placed --data {"n":2} --expected-version 1 => again
    event redact {again} --reason asked --yes
    stream delete order-{p} --yes
    stream store-snapshot shot-{p} --type order --at-version 1 --state {"n":2}
    stream snapshot shot-{p}
    topic publish news-{p} --data {"n":1}
    topic list
    topic stats news-{p}
    group create crew-{p} made.>
    group list
    group get crew-{p}
    group update --group {"name":"crew-{p}","maxInflight":3} --update-mask maxInflight
    group pause crew-{p}
    group resume crew-{p}
    group delete crew-{p} --yes
    outbox dlq list --env env_default
    outbox dlq requeue {requeued}
    outbox dlq discard {discarded} --yes
    flow emit
    flow invoke
    flow stream
    flow topic
    flow wait
    projection create counts_{p} --sql-file counts-{p}.sql --event-handler 'placed=INSERT INTO proj_counts_{p} (id) VALUES (:event_id)'
    projection list
    projection get counts_{p}
    projection status counts_{p}
    projection query counts_{p}
    projection wait counts_{p} --min-seq 1 --timeout 15s
    projection watch counts_{p} --min-seq 1 --timeout 15s
    projection wait-for-event {event} counts_{p} --timeout 15s
    projection wait-batch --items [{"name":"counts_{p}"}] --timeout 15s
    projection history counts_{p}
    projection revision counts_{p} --version 1
    projection pause counts_{p}
    projection resume counts_{p}
    projection rebuild start counts_{p} --yes
    projection rebuild status counts_{p}
    projection delete counts_{p} --yes
    projection partitions folded_{p}
    projection rebuild start folded_{p} --yes
    projection rebuild cancel folded_{p}
    kv create box-{p}
    kv buckets
    kv info box-{p}
    kv put box-{p} a --value one
    kv keys box-{p}
    kv get box-{p} a
    kv revisions box-{p} a
    kv delete box-{p} a --yes
    kv drop box-{p} --yes
    config put theme-{p} --data {"dark":true} => revision
    config patch theme-{p} --data {"wide":true}
    config list
    config get theme-{p}
    config history theme-{p}
    config rollback theme-{p} {revision}
    config delete theme-{p} --yes
    secret list
    secret get hush-{p}
    secret functions hush-{p}
    secret delete hush-{p} --yes
    webhook create --name hook-{p} --event-prefix hook-{p} --preset github --verify-secret @password => hook
    webhook list
    webhook get {hook}
    webhook update {hook} --name hooked-{p}
    webhook deliveries {hook}
    webhook test --source-id {hook} --body {}
    webhook rotate-token {hook} --yes
    webhook rotate-secret {hook} --verify-secret @password
    webhook delete {hook} --yes
    webhook send {open} --token {token} --payload {"n":1}
    webhook deliveries {open} => delivery
    webhook delivery {delivery}
    webhook redeliver {delivery}
    webhook endpoint create --name out-{p} --url https://example.test/ --pattern never-{p}.* => endpoint
    webhook endpoint list
    webhook endpoint get {endpoint}
    webhook endpoint update {endpoint} --name away-{p}
    webhook endpoint pause {endpoint}
    webhook endpoint resume {endpoint}
    webhook endpoint rotate-secret {endpoint}
    webhook endpoint dead-letters {endpoint}
    webhook endpoint delete {endpoint} --yes
    webhook endpoint redeliver {refusedAt} {resent}
    webhook endpoint discard {refusedAt} {dropped} --yes
    alert rule put rule-{p} --condition dead_letter --targets [{"type":"slack","url":"https://slack.example.test/{p}"}]
    alert rule list
    alert rule get rule-{p}
    alert rule silence rule-{p}
    alert rule test rule-{p}
    alert list
    alert resolve {alert}
    alert rule delete rule-{p} --yes
    tool list
    tool invoke desk-{p}.echo --input {"n":1}
    project create project-{p} => project
    project list
    project update {project} --name renamed-{p}
    env create env-{p} --project {project} => environment
    env list
    env get {environment}
    env update {environment} --color #112233
    env rotate-key {environment} --yes
    usage --by function --format csv
    quota get --id default
    quota set --id {environment} --runs-per-minute 5
    retention get
    retention set --days 30 --yes
    env delete {environment} --yes
    project delete {project} --yes
    org list
    org get org_default
    org update org_default --name Default
    apikey create key-{p} --role-ids role_viewer => key
    apikey list
    apikey get {key}
    apikey set-roles {key} --role-ids role_developer
    apikey rotate {key} --yes
    cluster rotate-token api_key --remote-key-id {key} --new-value @new-key --yes
    apikey delete {key} --yes
    user create --email ada-{p}@example.test --password @password --roles viewer => user
    session list
    user list
    user get {user}
    user update {user} --name Ada
  `),
  ...by("ada", lines("session own => session")),
  ...lines("session end {session} --yes"),
  ...by("ada", lines("user password {user} --current-password @password --new-password @next-password")),
  ...lines(`
    user end-sessions {user} --yes
    user identities {linked} => identity
    user unlink {linked} {identity} --yes
    user delete {user} --yes
    issuer create issuer-{p} --issuer https://{p}.example --client-id svc --roles [{"value":"*","role":"viewer"}] => issuer
    issuer list
    issuer get {issuer}
    issuer update {issuer} --name renamed-{p}
    issuer sign-in
    issuer passwords true
    issuer delete {issuer} --yes
    role create role-{p} --base viewer => role
    role list
    role get {role}
    role update {role} --name renamed-{p}
    policy create --name policy-{p} --effect deny --actions kv:read --resources * => policy
    policy list
    policy get {policy}
    policy update {policy} --actions kv:write
    policy versions list {policy}
    policy rollback {policy} 1
    policy test --actions kv:read --resources *
    role assign {role} --policy-id {policy}
    role policies {role}
    role unassign {role} {policy}
    role delete {role} --yes
    policy delete {policy} --yes
    policy template list
    policy template install tmpl_business_hours
    audit trail
    audit auth-trail
    audit settings
    audit verify
    server info
    server health
    server ready
    server routes
    server overview
    server rates --minutes 5
    server integrity
    server integrity-rows timers.overdue
    server requests
    cluster health
    sql 'SELECT 1 AS one'
  `),
  { line: "logs {run} --follow", follows: true },
  { line: "kv watch kept-{p}", follows: true },
  { line: "config watch theme-{p}", follows: true },
  { line: "platform create-admin --email root@svc.test --password @password --name Root" },
  ...by(
    "root",
    lines(`
    capacity stats
    capacity lanes
    capacity queue
    capacity leases
    capacity buckets
    capacity sessions
    capacity credits
    tenant list --as-org org_default
    tenant provision --org-name tenant-{p} --as-org org_default
    org create org-{p} --as-org org_default => org
    org delete {org} --yes --as-org {org}
    platform audit
    platform users list
    platform users create --email eve-{p}@example.test --password @password --name Eve => eve
    platform users get {eve}
    platform users update {eve} --name Eva
    platform sessions list => platformSession
    platform sessions end {platformSession} --yes
    platform users delete {eve} --yes
    platform issuers create issuer-{p} --issuer https://{p}.example --client-id svc => platformIssuer
    platform issuers list
    platform issuers get {platformIssuer}
    platform issuers update {platformIssuer} --name renamed-{p}
    platform issuers sign-in
    platform issuers passwords true
    platform issuers delete {platformIssuer} --yes
    platform roles list
    platform roles create role-{p} => platformRole
    platform roles get {platformRole}
    platform roles update {platformRole} --name renamed-{p}
    platform roles delete {platformRole} --yes
    platform policies list
    platform policies create --name policy-{p} --effect deny --actions kv:read --resources * => platformPolicy
    platform policies get {platformPolicy}
    platform policies update {platformPolicy} --actions kv:write
    platform roles create ruled-{p} => ruled
    platform roles assign {ruled} --policy-id {platformPolicy}
    platform roles policies {ruled}
    platform roles unassign {ruled} {platformPolicy}
    platform roles delete {ruled} --yes
    platform policies delete {platformPolicy} --yes
    platform tenants list
    platform tenants create --name tenant-of-{p} => tenant
    platform tenants get {tenant}
    platform tenants delete {tenant} --yes
  `),
  ),
];

/** Commands that the table leaves to tests of their own. */
export const casesElsewhere: Readonly<Record<string, string>> = {
  call: "unit/cli",
  serve: "operations/cli-process",
  dev: "operations/cli-process",
  init: "operations/cli-process",
  mcp: "operations/cli-mcp",
  backup: "operations/backup",
  restore: "operations/backup",
  import: "operations/import",
  export: "operations/cli",
  tail: "operations/cli-tail",
  subscribe: "operations/cli-tail",
  "stream subscribe": "operations/cli",
  doctor: "operations/cli",
  validate: "unit/cli",
  "config init": "unit/cli",
  completion: "unit/cli",
  licenses: "contract/binary",
  rehearse: "operations/rehearsal",
  "run move": "operations/pins",
  login: "operations/cli",
  "platform login": "operations/cli",
  "secret set": "operations/cli",
  "profile add": "operations/cli",
  "profile list": "operations/cli",
  "profile use": "operations/cli",
  "profile remove": "operations/cli",
};
