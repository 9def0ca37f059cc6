import { type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { KindGuard, type TSchema } from "@sinclair/typebox";
import { rpcBindings } from "../../src/edge/rpc.ts";
import { everyWay, type Way } from "./every-route.ts";
import { inTurn } from "./night.ts";
import type { TestServer } from "./server.ts";

/** What may stand in a name; each is put between two letters, so that nothing is a matter of trimming. */
export const hostile: Readonly<Record<string, string>> = {
  "a zero byte": "\u0000",
  "another control character": "\u001b[31m",
  "a line": "\r\nx-injected: 1",
  "a star": "*",
  "an arrow": ">",
  "two dots": "..",
  "a path": "/../../etc/passwd",
  sql: "'; drop table events; --",
  "ten kilobytes": "x".repeat(10 * 1024),
  "turned about": "\u202eevil\u2066",
  "no width": "\u200b\u200d\ufeff",
  "half a letter": "\ud800",
  "a template": "{{7*7}}%00%s",
  "a prototype": "__proto__",
};

type Path = readonly (string | number)[];

/** Where texts stand in an input: `["retry", "strategy"]`. */
function textsOf(schema: TSchema, path: Path = []): Path[] {
  if (KindGuard.IsObject(schema))
    return Object.entries(schema.properties).flatMap(([name, own]) => textsOf(own, [...path, name]));
  if (KindGuard.IsArray(schema)) return textsOf(schema.items, [...path, 0]);
  if (KindGuard.IsUnion(schema)) return schema.anyOf.flatMap((own) => textsOf(own, path)).slice(0, 1);
  return KindGuard.IsString(schema) ? [path] : [];
}

/** What is asked in place of a text that is not the one under test. */
export type Sample = (field: string, operation: string) => unknown;

/** Fields that must be right for the one under test to be reached. */
const samples: Record<string, (count: number) => unknown> = {
  email: (count) => `user-${count}@example.test`,
  password: () => "correct horse battery",
  base: () => "viewer",
  effect: () => "deny",
  actions: () => "runs:cancel",
  resources: () => "*",
  condition: () => "",
  name: (count) => `benign-${count}`,
  org_name: (count) => `benign-${count}`,
  env_name: (count) => `benign-${count}`,
  event: () => "benign.event",
  events: () => [{ event: "benign.event" }],
  function_ids: () => ["benign"],
  functionIds: () => ["benign"],
  functionId: () => "benign",
  workerId: () => "benign",
  value: () => "benign",
};
/** Of operations where a field of that name means another thing. */
const ids: Record<string, (count: number) => unknown> = {
  "functions.register": (count) => `benign-${count}`,
};

/** Values that most operations take; each name is another one. */
export function benign(): Sample {
  let count = 0;
  return (field, operation) => {
    if (field === "id") return ids[operation]?.(count++);
    return samples[field]?.(count++);
  };
}

/** Those that wait for the end of a run take the same input as those that do not; of the others one call is too many. */
export const isHeldOrLogin = ({ operation, path }: Way): boolean =>
  (operation.mode === "unary" && operation.held === true) ||
  path === "/api/v1/auth/login" ||
  path === "/api/v1/platform/auth/login" ||
  path === "/api/v1/cluster/rotate-token";

function sampleOf(schema: TSchema, field: string, operation: string, sample: Sample): unknown {
  const given = field === "" ? undefined : sample(field, operation);
  if (given !== undefined) return given;
  if (KindGuard.IsObject(schema)) {
    const required = new Set(schema.required ?? []);
    return Object.fromEntries(
      Object.entries(schema.properties).flatMap(([name, own]) =>
        required.has(name) ? [[name, sampleOf(own, name, operation, sample)]] : [],
      ),
    );
  }
  if (KindGuard.IsArray(schema)) return [];
  if (KindGuard.IsUnion(schema)) return sampleOf(schema.anyOf[0]!, field, operation, sample);
  if (KindGuard.IsLiteral(schema)) return schema.const;
  if (KindGuard.IsInteger(schema) || KindGuard.IsNumber(schema)) return schema.minimum ?? 1;
  if (KindGuard.IsBoolean(schema)) return false;
  return KindGuard.IsString(schema) ? "benign" : {};
}

function put(into: Record<string, unknown>, [first, ...rest]: Path, value: string): void {
  if (rest.length === 0) {
    into[String(first)] = value;
    return;
  }
  const inner = typeof rest[0] === "number" ? [] : {};
  into[String(first)] ??= inner;
  put(into[String(first)] as Record<string, unknown>, rest, value);
}

/** The same of a message, one level deep: what is deeper has a schema of its own behind it. */
function textsOfMessage(message: DescMessage): Path[] {
  return message.fields.flatMap((field): Path[] => {
    const isText =
      (field.fieldKind === "scalar" || field.fieldKind === "list") && field.scalar === ScalarType.STRING;
    if (!isText) return [];
    return [field.fieldKind === "list" ? [field.localName, 0] : [field.localName]];
  });
}

function sampleMessage(message: DescMessage, operation: string, sample: Sample): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  for (const field of message.fields) {
    const given = sample(field.localName, operation);
    if (given !== undefined) body[field.localName] = given;
  }
  return body;
}

export interface Sent {
  way: string;
  field: string;
  what: string;
  /** In every text that was sent, and in no other. */
  marker: string;
  value: string;
  status: number;
  text: string;
}

interface Walk {
  server: TestServer;
  headers: (way: Way) => Record<string, string>;
  sample: Sample;
  /** Texts to put in each place, by what they are. */
  texts: Readonly<Record<string, string>>;
  skips: (way: Way) => boolean;
  /** Of operations that change nothing, instead of those that do. */
  reads?: boolean;
}

/** Texts that each place is tried with by day. */
const textsByDay = 3;

/** Puts each text into each place of each operation that changes something, or of each that does not. */
export async function walk({ server, headers, sample, texts, skips, reads = false }: Walk): Promise<Sent[]> {
  const sent: Sent[] = [];
  const some = inTurn(Object.entries(texts), textsByDay);
  for (const way of everyWay(server.running.registry)) {
    const { operation, protocol, path, method } = way;
    if (operation.mode !== "unary" || (operation.reads ?? false) !== reads) continue;
    if (protocol === "socket" || skips(way)) continue;
    const message =
      protocol === "connect"
        ? rpcBindings(operation).find(({ method: { parent, name } }) =>
            path.endsWith(`.${parent.name}/${name}`),
          )!.method.input
        : undefined;
    const places = message ? textsOfMessage(message) : textsOf(operation.input);
    for (const place of places)
      for (const [what, text] of some()) {
        // So long that no id or hash looks like one by chance.
        const marker = `mk${String(sent.length).padStart(12, "0")}`;
        const inPath = path.includes(`{${place[0]}`);
        // Half a letter cannot be written in a path.
        const value = inPath ? `${marker}${text}z`.toWellFormed() : `${marker}${text}z`;
        const input = (
          message
            ? sampleMessage(message, operation.name, sample)
            : sampleOf(operation.input, "", operation.name, sample)
        ) as Record<string, unknown>;
        put(input, place, value);
        const filled = path.replace(/\{(\w+)(?:\.\.\.)?\}/g, (_, name: string) => {
          const own = String(input[name] ?? "none");
          delete input[name];
          return encodeURIComponent(own);
        });
        const sends = method !== "GET" && method !== "DELETE";
        const asked = Object.entries(input).filter(([, own]) => typeof own === "string") as [
          string,
          string,
        ][];
        const query = method === "GET" ? `?${new URLSearchParams(asked)}` : "";
        const answer = await fetch(`${server.url}${filled}${query}`, {
          method,
          headers: { ...headers(way), ...(sends && { "content-type": "application/json" }) },
          ...(sends && { body: JSON.stringify(input) }),
          signal: AbortSignal.timeout(20_000),
        });
        sent.push({
          way: `${method} ${path}`,
          field: place.join("."),
          what,
          marker,
          value,
          status: answer.status,
          text: await answer.text(),
        });
      }
  }
  return sent;
}

const escaped = (text: string): string => JSON.stringify(text).slice(1, -1);

/** Whether the value stands in the text as it is, in JSON, in JSON inside of JSON, or as a segment of a resource's name. */
export function holdsVerbatim(text: string, value: string): boolean {
  const segment = value.replaceAll("%", "%25").replaceAll(":", "%3A");
  return [
    value,
    escaped(value),
    escaped(escaped(value)),
    segment,
    encodeURIComponent(value.toWellFormed()),
  ].some((form) => text.includes(form));
}
