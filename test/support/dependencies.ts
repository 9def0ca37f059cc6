interface Dependency {
  for: string;
  why: string;
}

/** Why each package that ships is here; compared with package.json by test/contract/reference.test.ts. */
export const dependencies: Record<string, Dependency> = {
  "@bufbuild/protobuf": { for: "messages", why: "given with the project" },
  "@bufbuild/re2": {
    for: "`matches` in CEL, in linear time",
    why: "regular expressions of JavaScript backtrack, and tenants write patterns",
  },
  "@codemirror/autocomplete": {
    for: "the SQL editor of the dashboard: what completes a word",
    why: "the editor is loaded when its page is opened, and obeys the page's policy in a shadow tree",
  },
  "@codemirror/commands": { for: "the same: keys and undoing", why: "by the same author" },
  "@codemirror/lang-sql": { for: "the same: the words of SQL", why: "by the same author" },
  "@codemirror/language": { for: "the same: colours", why: "by the same author" },
  "@codemirror/lint": { for: "the same: marks where an error is", why: "by the same author" },
  "@codemirror/state": { for: "the same: the text", why: "by the same author" },
  "@codemirror/view": { for: "the same: the field itself", why: "by the same author" },
  "@connectrpc/connect": {
    for: "RPC: binary, gRPC-Web and streams",
    why: "given with the project; unary JSON is a short path of ours, three times cheaper",
  },
  "@connectrpc/connect-node": { for: "gRPC on node:http2", why: "Bun's own server sends no trailers" },
  "@dagrejs/dagre": {
    for: "where boxes and lines of the flow map stand",
    why: "the field's layout of layers; it runs in a worker that starts with the first map",
  },
  "@lezer/highlight": {
    for: "the SQL editor: which words get which colour",
    why: "what CodeMirror stands on",
  },
  "@marcbachmann/cel-js": {
    for: "CEL expressions",
    why: "the package `cel-js` fails half of our expressions and shows data in its errors",
  },
  "@modelcontextprotocol/sdk": {
    for: "`svc mcp`",
    why: "the protocol's own; its low-level server takes JSON Schema as we have it. Loaded by that command alone",
  },
  "@nats-io/jetstream": {
    for: "the mirror, and what the KV bucket stands on",
    why: "the maintained line of `nats`",
  },
  "@nats-io/kv": { for: "the KV bucket in which leaders are elected", why: "the same line" },
  "@nats-io/transport-node": { for: "core NATS", why: "the maintained line of `nats`, by the same authors" },
  "@opentelemetry/api": { for: "traces", why: "the standard; loaded only when configured" },
  "@opentelemetry/exporter-trace-otlp-http": { for: "traces over OTLP", why: "the same release" },
  "@opentelemetry/resources": { for: "the service's name in traces", why: "the same release" },
  "@opentelemetry/sdk-trace": { for: "spans and their sampling", why: "the same release" },
  "@preact/signals": {
    for: "state of the dashboard",
    why: "by the authors of preact; redraws what changed alone",
  },
  "@sinclair/typebox": { for: "input schemas, which are JSON Schema", why: "comes with Elysia" },
  commander: {
    for: "commands, their flags and help",
    why: "nested commands and help in groups without a dependency; `citty` has no groups and passes unknown flags over",
  },
  elysia: {
    for: "HTTP and WebSocket on Bun",
    why: "given with the project; costs 5 to 20 % over bare Bun.serve",
  },
  jose: { for: "session tokens", why: "given with the project; a fixed algorithm, no JWT code of our own" },
  libsql: {
    for: "the database of one process",
    why: "given with the project; `bun:sqlite` is the second driver behind the same seam",
  },
  "libpg-query": {
    for: "reading SQL of callers",
    why: "PostgreSQL's own parser as WebAssembly: what it admits is written anew from its tree",
  },
  marked: {
    for: "the pages at `/docs`",
    why: "GFM without dependencies, and its tokens are what the search looks through",
  },
  minisearch: {
    for: "the search of the pages at `/docs`",
    why: "ranks, spells and begins words in 7 KiB without dependencies; a list of synonyms is ours",
  },
  nodemailer: {
    for: "alerts that go by mail",
    why: "SMTP with TLS and authentication without dependencies; loaded by the first mail",
  },
  pino: { for: "logs", why: "fast, plain JSON" },
  postgres: {
    for: "PostgreSQL",
    why: "given with the project; pinned with a one-line patch: a backend that died inside a transaction ended the process",
  },
  preact: { for: "the dashboard", why: "11 KiB with hooks; writes text, never HTML" },
  "prom-client": {
    for: "metrics in Prometheus' text form",
    why: "the usual one; brings those of process, event loop and collector",
  },
  "swagger-ui-dist": {
    for: "the page over `/openapi.json`",
    why: "served by us; the swagger plugin emits 3.0 and loads from a CDN",
  },
  uplot: {
    for: "charts of the dashboard",
    why: "axes, bars and values under the pointer in 22 KiB, loaded with the first chart; it needs no inline style",
  },
};
