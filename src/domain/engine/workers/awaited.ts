import { type Static, Type } from "@sinclair/typebox";
import { CelError } from "../../../kit/cel/cel.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { requireEventName } from "../../../kit/event-names.ts";
import { invalid } from "../../../kit/fault.ts";
import { isRunId } from "../../../kit/ids.ts";
import { isEntityId } from "../../log/streams/rules.ts";
import { requireBucketNameAt, requireKeyAt } from "../../state/kv/rules.ts";
import type { WaitCondition } from "../runs/execution/execution-change.ts";
import {
  type Match,
  placeOfBucket,
  readMatch,
  runPlace,
  type StateCondition,
  streamPlace,
} from "../waits/rules.ts";
import { waitConditionsMax, waitValueBytesMax } from "./limits.ts";
import { plainText } from "./texts.ts";

const lenient = { additionalProperties: true };
export const orNull = <T extends Parameters<typeof Type.Union>[0][number]>(type: T) =>
  Type.Optional(Type.Union([type, Type.Null()]));
const count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const yes = Type.Literal(true);

const StreamShape = Type.Object(
  {
    entity_id: shape.text("Id of the entity."),
    version: Type.Optional(
      described(count, "The version that its stream reaches; one that it has already counts."),
    ),
    after: Type.Optional(described(count, "The version after which something is appended.")),
  },
  lenient,
);

const KeyShape = Type.Object(
  {
    bucket: shape.text("Name of the bucket; one that is not there has no keys."),
    key: shape.text("The key in its bucket."),
    after: Type.Optional(
      described(count, "The revision after which the key changes: it is put, or deleted."),
    ),
    equals: maybe.text(`Base64: the value that the key has, at most ${waitValueBytesMax} bytes.`),
    exists: Type.Optional(described(yes, "The key has a value.")),
    deleted: Type.Optional(described(yes, "The key has no value: deleted, expired or never put.")),
  },
  lenient,
);

const RunShape = Type.Object(
  { run_id: shape.text("A run that this run started; it ends, or has ended.") },
  lenient,
);

export const matchValueFields = {
  match_value: Type.Optional(
    Type.Unknown({
      description: "What the path must equal; compared with the run's own event when left out.",
    }),
  ),
  has_match_value: maybe.flag("A `match_value` that is null, or left out, is null and counts."),
};

/** Clients that always write every field send null when there is no value. */
export const literalOf = ({ match_value: value, has_match_value: isThere }: SentMatchValue) =>
  isThere || (value !== undefined && value !== null) ? { value: value ?? null } : undefined;
type SentMatchValue = { match_value?: unknown; has_match_value?: boolean };

/** What a handler waits for, together with others: an event, an entity, a key or a child. */
export const ConditionShape = Type.Object(
  {
    name: Type.String({ minLength: 1, maxLength: 256, description: "Name of the condition, of its own." }),
    event: described(orNull(Type.String()), "Name of the event."),
    match: described(orNull(Type.String()), "A path or a CEL expression on the event."),
    ...matchValueFields,
    stream: described(orNull(StreamShape), "In place of an event: the stream of an entity."),
    key: described(orNull(KeyShape), "In place of an event: a key of a bucket."),
    run: described(orNull(RunShape), "In place of an event: a run that this run started."),
  },
  lenient,
);
type SentCondition = Static<typeof ConditionShape>;

export const ConditionsShape = Type.Array(ConditionShape, {
  minItems: 1,
  maxItems: waitConditionsMax,
  description: `What a \`wait_for_events\` waits for: at most ${waitConditionsMax} conditions.`,
});

const kinds = ["event", "stream", "key", "run"] as const;

/** Throws the fault that names the field of the condition. */
export function readCondition(field: string, sent: SentCondition): WaitCondition {
  const name = plainText(`${field}.name`, sent.name);
  const { event, match, stream, key, run } = sent;
  const given = kinds.filter((kind) => sent[kind] !== undefined && sent[kind] !== null);
  if (given.length !== 1) throw invalid(field, `needs one of ${kinds.join(", ")}`);
  if (stream) return { name, state: readStream(`${field}.stream`, stream) };
  if (key) return { name, state: readKey(`${field}.key`, key) };
  if (run) return { name, state: readRun(`${field}.run`, run) };
  requireEventName(`${field}.event`, event!);
  const read = readMatchField(`${field}.match`, match ?? undefined, literalOf(sent));
  return { name, eventName: event!, match: read };
}

export function readMatchField(
  field: string,
  text: string | undefined,
  literal: { value: unknown } | undefined,
): Match {
  try {
    return readMatch(text, literal);
  } catch (error) {
    if (error instanceof CelError) throw invalid(field, error.message);
    throw error;
  }
}

/** The only one of these that is given; throws for none and for several. */
function onlyOf<Name extends string>(
  field: string,
  sent: Partial<Record<Name, unknown>>,
  names: readonly Name[],
): Name {
  const given = names.filter((name) => sent[name] !== undefined);
  if (given.length !== 1) throw invalid(field, `needs one of ${names.join(", ")}`);
  return given[0]!;
}

function readStream(field: string, sent: Static<typeof StreamShape>): StateCondition {
  const { entity_id: subject, version, after } = sent;
  if (!isEntityId(subject)) throw invalid(`${field}.entity_id`, "must be the id of an entity");
  const given = onlyOf(field, sent, ["version", "after"]);
  if (given === "version" && version === 0) throw invalid(`${field}.version`, "must be at least 1");
  return { place: streamPlace, subject, test: "reaches", bound: version ?? after! + 1, wanted: null };
}

function readKey(field: string, sent: Static<typeof KeyShape>): StateCondition {
  const { bucket, key: subject } = sent;
  requireBucketNameAt(`${field}.bucket`, bucket);
  requireKeyAt(`${field}.key`, subject);
  const base = { place: placeOfBucket(bucket), subject, bound: null, wanted: null };
  switch (onlyOf(field, sent, ["after", "equals", "exists", "deleted"])) {
    case "after":
      return { ...base, test: "changed", bound: sent.after! };
    case "equals":
      return { ...base, test: "equals", wanted: readWanted(`${field}.equals`, sent.equals!) };
    case "exists":
      return { ...base, test: "exists" };
    case "deleted":
      return { ...base, test: "absent" };
  }
}

/** As the store has it. */
function readWanted(field: string, text: string): string {
  const bytes = Buffer.from(text, "base64");
  if (bytes.toString("base64") !== text) throw invalid(field, "must be base64, with its padding");
  if (bytes.length > waitValueBytesMax) throw invalid(field, `at most ${waitValueBytesMax} bytes`);
  return text;
}

function readRun(field: string, { run_id }: Static<typeof RunShape>): StateCondition {
  const subject = plainText(`${field}.run_id`, run_id);
  if (!isRunId(subject)) throw invalid(`${field}.run_id`, "must be the id of a run");
  return { place: runPlace, subject, test: "ends", bound: null, wanted: null };
}
