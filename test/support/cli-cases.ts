/** One command line that a server answers. */
export interface CliCase {
  /** `{p}` is a word of the pass alone; `{name}` is what an earlier line showed. */
  line: string;
  /** The id that the answer has first, for later lines. */
  as?: string;
  /** 1 where the server must refuse, and why it says so. */
  refused?: RegExp;
  /** By a platform credential instead of the org's admin key. */
  byPlatform?: true;
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

const by = (platform: readonly CliCase[]): CliCase[] =>
  platform.map((one) => ({ ...one, byPlatform: true as const }));

const refusedAs = (refused: RegExp, text: string): CliCase[] =>
  lines(text).map((one) => ({ ...one, refused }));

/**
 * A line of every command that asks a server, in an order in which each finds what it needs. Before: the runs `{run}`
 * (completed), `{failed}` and `{waiting}`, the secret `hush-{p}`, and the bucket `kept-{p}` with a key.
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
    inspect {run}
    why {failed}
    run pause {waiting}
    run paused-state {waiting}
    run resume {waiting}
    resume {failed}
    run cancel {waiting} --reason done
    cancel {failed}
    run cancel-subtree {waiting} --yes
    repair list
    repair preview --action cancel --filter {"functionId":"made-{p}"}
    repair start --action cancel --filter {"functionId":"made-{p}"} --yes => repair
    repair get {repair}
    repair items {repair}
    replay preview made-{p} --events {"name":"made-{p}.asked"}
    replay start made-{p} --events {"name":"made-{p}.asked"} --yes
    worker list
    attribute list
    attribute delete shade_{p} --yes
    debounce list
    batch list
    batch list --function made-{p}
    debounce cancel --env-id env_default --function none --key bm9uZQ --yes
    schedule list
    circuit-breaker list
    circuit-breaker reset bm9uZXxub25l
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
    event schema list
    event schema get shaped-{p}
    event schema check
    event schema set-mode warn
    event schema set-mode off
    event schema delete shaped-{p} 1 --yes
    stream append order-{p} --type order --event placed --data {"n":1} => placed
    stream list
    stream info order-{p}
    stream read order-{p}
    stream history order-{p}
    stream redact order-{p} {placed} --yes
    stream append order-{p} --type order --event placed --data {"n":2} --expected-version 1 => again
    event redact order-{p} {again} --yes
    stream delete order-{p} --yes
    topic publish news-{p} --data {"n":1}
    topic list
    topic stats news-{p}
    group create crew-{p} made.>
    group list
    group get crew-{p}
    group delete crew-{p} --yes
    outbox dlq list --env env_default
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
    projection wait-batch --items [{"name":"counts_{p}"}] --timeout 15s
    projection pause counts_{p}
    projection resume counts_{p}
    projection rebuild start counts_{p} --yes
    projection rebuild status counts_{p}
    projection delete counts_{p} --yes
    kv create box-{p}
    kv buckets
    kv info box-{p}
    kv put box-{p} a --value one
    kv keys box-{p}
    kv get box-{p} a
    kv revisions box-{p} a
    kv delete box-{p} a
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
    webhook rotate-token {hook}
    webhook rotate-secret {hook} --verify-secret @password
    webhook delete {hook} --yes
    webhook endpoint create --name out-{p} --url https://example.test/ --pattern never-{p}.* => endpoint
    webhook endpoint list
    webhook endpoint get {endpoint}
    webhook endpoint update {endpoint} --name away-{p}
    webhook endpoint pause {endpoint}
    webhook endpoint resume {endpoint}
    webhook endpoint rotate-secret {endpoint}
    webhook endpoint dead-letters {endpoint}
    webhook endpoint delete {endpoint} --yes
    tool list
    project create project-{p} => project
    project list
    project update {project} --name renamed-{p}
    env create env-{p} --project {project} => environment
    env list
    env get {environment}
    env update {environment} --color #112233
    env rotate-key {environment} --yes
    quota get --id {environment}
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
    apikey delete {key} --yes
    user create --email ada-{p}@example.test --password @password --roles viewer => user
    user list
    user get {user}
    user update {user} --name Ada
    session own
    session list
    user end-sessions {user} --yes
    user delete {user} --yes
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
    audit trail
    audit auth-trail
    audit settings
    audit verify
    server info
    server health
    server ready
    server routes
    server overview
    server integrity
    server integrity-rows timers.overdue
    server requests
    cluster health
    sql 'SELECT 1 AS one'
  `),
  { line: "kv watch kept-{p}", follows: true },
  { line: "config watch theme-{p}", follows: true },
  ...by(
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
    platform users delete {eve} --yes
    platform roles list
    platform roles create role-{p} => platformRole
    platform roles get {platformRole}
    platform roles update {platformRole} --name renamed-{p}
    platform roles delete {platformRole} --yes
    platform policies list
    platform policies create --name policy-{p} --effect deny --actions kv:read --resources * => platformPolicy
    platform policies get {platformPolicy}
    platform policies update {platformPolicy} --actions kv:write
    platform policies delete {platformPolicy} --yes
    platform tenants list
    platform tenants create --name tenant-of-{p} => tenant
    platform tenants get {tenant}
    platform tenants delete {tenant} --yes
  `),
  ),
  ...refusedAs(
    /platform|no password but their own/i,
    `
    platform create-admin --email root@svc.test --password @password --name Root
    cluster rotate-token jwt_secret --new-value @password --yes
    user password usr_none --current-password @password --new-password @password
  `,
  ),
  ...refusedAs(/pause it first/, `run inject {run} step_none --output {"n":1}`),
  ...refusedAs(
    / not found/,
    `
    run patch-step step_none --output {"n":1}
    repair pause repair_none
    session end ses_none --yes
    repair continue repair_none
    repair stop repair_none
    event upcast none --from 1 --to 2 --data {}
    stream snapshot order-none
    outbox dlq requeue evt_none
    outbox dlq discard evt_none --yes
    projection partitions none
    projection wait-for-event evt_none none
    projection rebuild cancel none
    webhook delivery whd_none
    webhook redeliver whd_none
    webhook send whs_none --token none --payload {}
    webhook endpoint redeliver whe_none evt_none
    webhook endpoint discard whe_none evt_none --yes
    tool invoke none.none
    policy template install none
  `,
  ),
];

/**
 * Lines whose answers are not what their schemas say: a delayed event has no `eventId` yet, and the trail has its fields in both
 * spellings.
 */
export const unlikeTheirSchema: readonly string[] = ["emit later-{p} --delay-ms 3600000", "audit auth-trail"];

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
  login: "operations/cli",
  "platform login": "operations/cli",
  "secret set": "operations/cli",
  "profile add": "operations/cli",
  "profile list": "operations/cli",
  "profile use": "operations/cli",
  "profile remove": "operations/cli",
};
