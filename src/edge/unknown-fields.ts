import { KindGuard, type TSchema } from "@sinclair/typebox";
import { type Fault, invalid } from "../kit/fault.ts";
import type { Log } from "../kit/log.ts";
import type { Metrics } from "../kit/metrics.ts";
import type { Operation } from "../kit/operation.ts";

/** What happens to unknown fields in requests that may have them. */
export type UnknownFields = ReturnType<typeof openUnknownFields>;

/** Unknown names that are logged, each once. */
const loggedMax = 1_000;
const fieldCharsMax = 100;

export function openUnknownFields(host: { log: Log; metrics: Metrics; strict: boolean }) {
  const count = host.metrics.counter({
    name: "svc_unknown_fields_total",
    help: "Fields of requests that this server does not know and passed over; the debug log names each once.",
    labels: ["operation"],
  });
  const logged = new Set<string>();
  return {
    /** `SVC_STRICT_INPUT`: they are refused instead. */
    strict: host.strict,
    ignored({ name }: Operation, field: string) {
      count(name).add();
      const shown = field.slice(0, fieldCharsMax);
      const key = `${name} ${shown.replaceAll(/\[[^\]]*\]/g, "[]")}`;
      if (logged.has(key) || logged.size >= loggedMax) return;
      logged.add(key);
      host.log.debug("request.unknown_field", { operation: name, field: shown });
    },
  };
}

/**
 * These operations refuse unknown fields on every protocol: a misspelt `expires_in` must not make a key that
 * never expires, a misspelt `statuses` cancel or delete every run of a function, a misspelt `dryRun` rebuild
 * a projection, nor a misspelt `verifySecret` make a webhook source that verifies nothing.
 */
const exact =
  /^(keys|roles|policies|users|secrets|platform|repairs|replays)\.|^(runs\.deleteMany|streams\.delete|projections\.rebuild|(webhooks|webhookEndpoints)\.create)$/;

export const refusesUnknown = (fields: UnknownFields | undefined, { name }: Operation): boolean =>
  fields?.strict === true || exact.test(name);

export const unknownField = (path: string): Fault => invalid(path, "unknown field");

/** What to do with an unknown field of this operation: throws where it is refused. */
export function unknownTo(fields: UnknownFields | undefined, operation: Operation): (path: string) => void {
  if (refusesUnknown(fields, operation))
    return (path) => {
      throw unknownField(path);
    };
  return (path) => fields?.ignored(operation, path);
}

/**
 * Fields that workers send with reports, heartbeats and yields as they were agreed on, and that nothing here
 * needs.
 */
const ignoredFields = new Set([
  "data",
  "execution_seq",
  "job_id",
  "lease_token",
  "run_id",
  "started_at",
  "version",
  "worker_id",
]);

type Look = (value: unknown, path: string, tell: (path: string) => void) => void;

/**
 * Finds the unknown fields of objects that are open to them; undefined for a schema without such an object.
 */
export function lookFor(schema: TSchema): Look | undefined {
  if (KindGuard.IsArray(schema)) {
    const look = lookFor(schema.items);
    return (
      look &&
      ((value, path, tell) => {
        if (Array.isArray(value))
          for (const [at, item] of value.entries()) look(item, `${path}[${at}]`, tell);
      })
    );
  }
  if (KindGuard.IsUnion(schema)) return schema.anyOf.map(lookFor).find((look) => look !== undefined);
  if (!KindGuard.IsObject(schema)) return undefined;
  const inner = new Map<string, Look | undefined>();
  for (const [name, property] of Object.entries(schema.properties)) inner.set(name, lookFor(property));
  const open = schema.additionalProperties === true && inner.size > 0;
  if (!open && [...inner.values()].every((look) => look === undefined)) return undefined;
  return (value, path, tell) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return;
    for (const name in value) {
      const place = path === "" ? name : `${path}.${name}`;
      if (inner.has(name)) inner.get(name)?.((value as Record<string, unknown>)[name], place, tell);
      else if (open && !ignoredFields.has(name)) tell(place);
    }
  };
}
