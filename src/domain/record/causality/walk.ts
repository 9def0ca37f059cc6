import type { CausalReader } from "./rows.ts";
import * as rows from "./rows.ts";
import {
  type CausalDirection,
  type CausalKind,
  type CausalLink,
  type CausalName,
  type CausalRelation,
  pairOf,
  readPair,
  textOf,
} from "./rules.ts";

type CausalLooking = (reader: rows.CausalReader, look: rows.CausalLook) => Promise<CausalLink[]>;

const link = (
  cause: [CausalKind, string],
  relation: CausalRelation,
  effect: [CausalKind, string],
): CausalLink => ({
  cause: { kind: cause[0], id: cause[1] },
  effect: { kind: effect[0], id: effect[1] },
  relation,
});

const started = ({ event_id, id }: { event_id: string; id: string }) =>
  link(["event", event_id], "started", ["run", id]);

const emitted = ({ run_id, id, entity_id }: { run_id: string; id: string; entity_id: string | null }) =>
  link(["run", run_id], entity_id === null ? "emitted" : "appended", ["event", id]);

/** What a webhook delivery left in its event's metadata, which only the server writes under this source. */
function deliveryOf(metadata: string | null): string | undefined {
  const read =
    metadata === null ? undefined : (JSON.parse(metadata) as { webhook?: { delivery_id?: unknown } });
  const id = read?.webhook?.delivery_id;
  return typeof id === "string" ? id : undefined;
}

const stepLinks = async (
  reader: rows.CausalReader,
  { environmentId, ids }: rows.CausalLook,
  linkOf: (id: string, runId: string, child: string | null) => CausalLink | undefined,
): Promise<CausalLink[]> => {
  const found: CausalLink[] = [];
  for (const id of ids) {
    const pair = readPair(id);
    const step = await rows.stepOf(reader, environmentId, pair);
    const made = step && linkOf(id, pair[0], step.child_run_id);
    if (made) found.push(made);
  }
  return found;
};

/** From a thing to what it led to. */
const effectsOf: Record<CausalKind, readonly CausalLooking[]> = {
  event: [
    async (reader, look) => (await rows.runsStartedBy(reader, look)).map(started),
    async (reader, look) => (await rows.runsOfBatchesWith(reader, look)).map(started),
    async (reader, look) =>
      (await rows.lettersOf(reader, look)).map((one) =>
        link(["event", one.event_id], "undelivered", ["letter", pairOf(one.endpoint_id, one.event_id)]),
      ),
  ],
  run: [
    async (reader, look) => (await rows.eventsOfRuns(reader, look)).map(emitted),
    async (reader, look) =>
      (await rows.messagesOfRuns(reader, look)).map((one) =>
        link(["run", one.run_id], "published", ["message", String(one.position)]),
      ),
    async (reader, look) =>
      (await rows.childrenOfRuns(reader, look)).map((one) =>
        link(["run", one.run_id], "invoked", ["run", one.child_run_id]),
      ),
  ],
  step: [
    (reader, look) =>
      stepLinks(reader, look, (id, _runId, child) =>
        child === null ? undefined : link(["step", id], "invoked", ["run", child]),
      ),
  ],
  message: [],
  delivery: [
    async (reader, look) =>
      (await rows.deliveriesById(reader, look)).flatMap((one) =>
        one.event_id === null ? [] : link(["delivery", one.id], "brought", ["event", one.event_id]),
      ),
  ],
  letter: [],
};

/** From a thing to what led to it. */
const causesOf: Record<CausalKind, readonly CausalLooking[]> = {
  event: [
    async (reader, look) =>
      (await rows.eventsById(reader, look)).flatMap((one) => {
        const { id, run_id, entity_id } = one;
        const delivery = deliveryOf(one.metadata);
        return [
          ...(run_id === null ? [] : [emitted({ run_id, id, entity_id })]),
          ...(delivery === undefined ? [] : [link(["delivery", delivery], "brought", ["event", id])]),
        ];
      }),
  ],
  run: [
    async (reader, look) =>
      (await rows.runsById(reader, look)).flatMap((one) => [
        started(one),
        ...(one.parent_run_id === null ? [] : [link(["run", one.parent_run_id], "invoked", ["run", one.id])]),
      ]),
    async (reader, look) => (await rows.furtherEventsOf(reader, look)).map(started),
  ],
  step: [
    (reader, look) => stepLinks(reader, look, (id, runId) => link(["run", runId], "took", ["step", id])),
  ],
  message: [
    async (reader, look) =>
      (await rows.messagesAt(reader, look)).flatMap((one) =>
        one.run_id === null ? [] : link(["run", one.run_id], "published", ["message", String(one.position)]),
      ),
  ],
  delivery: [],
  letter: [
    async (_reader, { ids }) =>
      ids.map((id) => link(["event", readPair(id)[1]], "undelivered", ["letter", id])),
  ],
};

export interface Walked {
  /** By text, with the distance from where the walk began: negative for causes. */
  depths: Map<string, { thing: CausalName; depth: number }>;
  links: Map<string, CausalLink>;
  isTruncated: boolean;
}

export interface WalkOptions {
  environmentId: string;
  depth: number;
  most: number;
}

/**
 * Goes away from the things level by level, each level by a few queries for all of it. A thing counts once,
 * at its shortest distance, so that circles end.
 */
export async function walk(
  reader: CausalReader,
  from: readonly CausalName[],
  directions: readonly CausalDirection[],
  { environmentId, depth, most }: WalkOptions,
): Promise<Walked> {
  const walked: Walked = { depths: new Map(), links: new Map(), isTruncated: false };
  for (const thing of from) walked.depths.set(textOf(thing), { thing, depth: 0 });
  for (const direction of directions) {
    const looksOf = direction === "effects" ? effectsOf : causesOf;
    let level = [...from];
    for (let distance = 1; level.length > 0; distance++) {
      const next: CausalName[] = [];
      for (const [kind, own] of Map.groupBy(level, (one) => one.kind)) {
        const ids = own.map(({ id }) => id);
        for (const look of looksOf[kind]) {
          const links = await look(reader, { environmentId, ids, most: most + 1 });
          for (const link of links) {
            const thing = direction === "effects" ? link.effect : link.cause;
            const isNew = !walked.depths.has(textOf(thing));
            if (isNew && (distance > depth || walked.depths.size >= most)) {
              walked.isTruncated = true;
              continue;
            }
            walked.links.set(`${textOf(link.cause)}\n${textOf(link.effect)}`, link);
            if (!isNew) continue;
            walked.depths.set(textOf(thing), {
              thing,
              depth: direction === "effects" ? distance : -distance,
            });
            next.push(thing);
          }
        }
      }
      level = next;
    }
  }
  return walked;
}
