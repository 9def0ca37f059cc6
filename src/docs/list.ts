/** A page of the documentation: a file below `src`, or beside it in a whole tree. */
export interface DocsPage {
  /** Its address below `/docs`. */
  name: string;
  /** From the folder of the sources. */
  file: string;
  title: string;
  about: string;
  /** What others call what it is about. */
  words: string;
}

export interface DocsGroup {
  title: string;
  pages: readonly DocsPage[];
}

const wordsOf: Readonly<Record<string, string>> = {
  start:
    "quickstart install getting started tutorial hello world first function npm bun setup local development curl do i need redis seed sample events",
  concepts:
    "architecture guarantees durable execution at least once exactly once delivery consistency ordering how it works event driven is my data safe kill -9 power loss fsync",
  functions:
    "workflow durable function step retry policy sleep wait child parallel versioning deploy code change running determinism replay handler timeout concurrency throttle debounce batch singleton priority cron schedule timezone cancel when event subworkflow one at a time rate limit key nondeterminism queue task job activity nightly retryable every minute hour day later unique recurring overlap idempotent call drip campaign onboarding reminder send email 24 hours after days queue per tenant user fairness noisy neighbour collect events for then process them together only the last newest update no more than calls second external service important customers first loop many iterations on failure filter by condition before starting",
  events:
    "emit trigger idempotency deduplicate duplicates delayed future event schema validate upcast versions breaking batch several events late cancel scheduled same twice unique once only",
  "streams-projections":
    "event sourcing aggregate entity append optimistic concurrency locking expected version snapshot read model rebuild sql lag query sql over events add a column change a projection as it was yesterday as of",
  "real-time":
    "websocket subscribe pubsub topics consumer groups browser push live updates notify frontend acknowledge presence online chat disconnect reconnect ack nack react hook cel expression examples",
  webhooks:
    "incoming outgoing endpoint signature verify stripe github provider dead letter retries send to customers partners receive tunnel ngrok test locally disable failing endpoint secret rotation transform payload",
  state:
    "kv key value store config feature flags secrets compare and swap revision optimistic locking watch changes lock store a token or credential for handlers ttl expires expire counter atomic increment share between functions",
  clients:
    "python go java ruby php rust csharp generated grpc connect openapi other languages golang kotlin swift elixir",
  frameworks:
    "nextjs next.js hono express fastify koa aws lambda vercel netlify cloudflare deno serverless edge route handler docker dockerfile container kubernetes deploy worker process push endpoint scale workers up and down automatically autoscale in flight jobs when a pod is terminated",
  outputs: "tokens llm ai partial results progress sse bar server-sent browser",
  signals:
    "approval human in the loop mailbox send workflow external callback wait pause until a user clicks a link approve reject give up if nobody answers within two days",
  deployments:
    "pin versioning blue green canary rolling deploy worker version build safe to stop dry run replay test ci pinned test new code against production old runs finish with old code",
  recipes:
    "saga human approval in the loop fan out rate limit per customer report agent examples patterns reduce refund payment if shipping fails",
  "coming-from":
    "temporal inngest bullmq kurrent trigger hatchet restate dbos migrate from alternatives comparison equivalent terms signal continue as new aws step functions airflow celery sidekiq kafka compare",
  "run-failed":
    "failed run kill debug troubleshoot stuck resume retry from step patch replay bulk repair rollback bad deploy event sent but function did not run pick up jobs paused retry all failed runs at once why is it still waiting search find a run by order id fix a bug and rerun everything that failed yesterday worker does not connect time travel debugging for hours nothing happens dashboard shows old data",
  alerts: "notify notification mail email smtp slack tell me when a run fails alert rule silence incident",
  access:
    "users roles api keys policies rbac permissions audit log organizations tenants login sessions password teammate service account ci changed key who did what read only user limit what a key may do least privilege restrict environments who deleted changed this block certain users from set quota for a customer",
  erasure: "gdpr delete erase personal data right to be forgotten redact purge runs events steps payload old",
  "sign-in":
    "oidc openid connect sso saml single sign on okta auth0 keycloak entra azure ad google identity provider groups pkce device code break glass back channel logout disable log out everyone sign out all",
  cluster:
    "nodes scale horizontally high availability upgrade rolling failover load balancer production deployment split brain quorum leader election elected add a node remove a dead node",
  traces: "opentelemetry tracing spans otlp observability jaeger datadog",
  tuning:
    "slow performance latency throughput queue backlog alerts metrics prometheus grafana monitoring benchmark grows minimum hardware requirements cpu memory sizing capacity events a second",
  usage:
    "billing cost metering consumption statistics how many runs per day per function charge customers csv month",
  security:
    "threat model encryption at rest master key rotate keys ssrf tls compliance gdpr isolation ip allowlist firewall penetration test audit report",
  errors: "error codes http status meaning 400 401 403 404 409 413 429 503 rate limited by the server",
  limits:
    "maximum minimum size quota payload length duration how many how long how large how many subscriptions events connections per",
  sdk: "typescript javascript node sdk options worker client test harness unit mock compensate serve nextjs graceful shutdown drain priority batch cancel when an event arrives secrets logging backfill replay past events types",
  answers:
    "rest api http pagination cursor filters headers rate limit idempotency key read your writes export import data backfill consistency filter a list by date",
  commands:
    "cli command line terminal svc profile environment staging production switch doctor tail mcp mcp server for an editor cursor claude desktop code",
  reference:
    "settings environment variables configuration behind a reverse proxy trust loops metrics tables port log level logging verbose json logs structured",
  wire: "protocol grpc connect protobuf websocket frames worker in another language rust go python push endpoint implement a worker without the sdk lease token",
  runbook:
    "backup restore upgrade downgrade rollback helm kubernetes docker pgbouncer postgres failover drain install production reverse proxy nginx haproxy disaster recovery readiness liveness probe health check vacuum autovacuum disk full traffic between nodes encrypted mtls",
  glossary: "terms words meaning definition terminology",
  changelog: "release notes breaking changes versions new what changed",
};

const own = (name: string, title: string, about: string): DocsPage =>
  other(name, `docs/pages/${name}.md`, title, about);

const other = (name: string, file: string, title: string, about: string): DocsPage => ({
  ...{ name, file, title, about },
  words: wordsOf[name] ?? "",
});

/** Every page, in the order in which a reader meets them. */
export const groups: readonly DocsGroup[] = [
  {
    title: "Begin",
    pages: [
      own("start", "Start", "From an empty folder to a completed run."),
      own("concepts", "Concepts", "What svc is made of, and what it guarantees."),
    ],
  },
  {
    title: "Build",
    pages: [
      own("functions", "Functions and steps", "What runs, what is stored, and what happens after a crash."),
      own("events", "Events and schemas", "Emit, deduplicate, delay and validate events."),
      own("streams-projections", "Streams and projections", "Event sourcing: streams and read models."),
      own("real-time", "Real time", "Subscriptions, topics and consumer groups."),
      own("webhooks", "Webhooks", "From providers in, to partners out."),
      own("state", "Keys, config and secrets", "Key-value buckets, config documents, secrets."),
      own(
        "frameworks",
        "Frameworks, serverless and containers",
        "Where handlers live, and how they are deployed.",
      ),
      own("clients", "Clients in other languages", "Generated from the server's description of itself."),
      own("outputs", "Outputs", "Show what a run makes while it makes it: tokens in a browser."),
      own("signals", "Signals", "Tell a run something, whether or not it waits for it yet."),
      own("deployments", "Deployments", "Replace code while runs are under way: pin, move, rehearse."),
      own("recipes", "Recipes", "A saga, fan-out, an approval, a rate limit, a report, webhooks, an agent."),
      own(
        "coming-from",
        "Coming from another system",
        "Temporal, Inngest, BullMQ, Kurrent, Trigger.dev, Hatchet, Restate, DBOS: their words, and ours.",
      ),
    ],
  },
  {
    title: "Operate",
    pages: [
      own("run-failed", "A run failed, what now?", "Five commands, from the list to the resume."),
      own("alerts", "Alerts", "Who is told when something goes wrong: mail, Slack, webhooks."),
      own("access", "Access", "Roles allow, policies deny, the audit remembers."),
      own("erasure", "Deletion and redaction", "What you can erase, what stays, and what you do yourself."),
      own("sign-in", "Sign-in by a provider", "OpenID Connect: roles by groups, passwords off."),
      own("cluster", "Cluster operations", "Which procedure you need, and where it stands."),
      own("traces", "Traces", "One trace from the caller to the last step, and your spans in it."),
      own("tuning", "Tuning", "What you see, where to look, what to turn."),
      own("usage", "Usage", "What an environment used, by day and by function."),
      own("security", "Security and threat model", "Whom svc protects from whom, and what stays with you."),
    ],
  },
  {
    title: "Look up",
    pages: [
      own("errors", "Errors", "Every kind of error: what it means and what to do."),
      own("limits", "Limits", "Every limit by its name, with its value."),
      other("sdk", "sdk/README.md", "The SDK", "Every option of the SDK for TypeScript."),
      other("answers", "API.md", "What the API answers", "Rules that hold for every call."),
      other("commands", "cli/README.md", "The command line", "Every command."),
      other("reference", "REFERENCE.md", "Reference", "Settings, frames, loops, tables, metrics, checks."),
      other("wire", "../proto/README.md", "The wire", "RPC messages, for clients in any language."),
      other(
        "runbook",
        "../cluster/README.md",
        "Runbook",
        "Several nodes: start, drain, upgrade, back up, restore.",
      ),
      other("glossary", "GLOSSARY.md", "Glossary", "One meaning a word."),
      other("changelog", "CHANGELOG.md", "Changelog", "What changed, and what an operator has to do."),
    ],
  },
];
