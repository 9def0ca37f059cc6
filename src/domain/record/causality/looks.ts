import * as rows from "./rows.ts";
import { type CausalKind, type CausalLink, type CausalRelation, pairOf, readPair } from "./rules.ts";

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
export const effectsOf: Record<CausalKind, readonly CausalLooking[]> = {
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
export const causesOf: Record<CausalKind, readonly CausalLooking[]> = {
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
