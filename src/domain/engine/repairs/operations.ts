import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow, allThingsOf } from "../../../gate/things.ts";
import {
  type RepairFilter as FilterMessage,
  ListRepairItemsResponseSchema,
  ListRepairsResponseSchema,
  PreviewRepairResponseSchema,
  RepairItemSchema,
  RepairService,
} from "../../../gen/svc/v1/repair_pb.ts";
import { inSnakeCase, stated } from "../../../kit/cases.ts";
import { maybe } from "../../../kit/described.ts";
import { shapeOf } from "../../../kit/message-shape.ts";
import { type Call, listed, listedById, type Operation, rpc, unary } from "../../../kit/operation.ts";
import { asGiven, asSent } from "../../../kit/request.ts";
import { AttributeFilterShape } from "../attributes/rules.ts";
import { filterOfMessage } from "../attributes/wire.ts";
import type { SelectedRun } from "../runs/list-runs.ts";
import { noCounts, repairActions } from "./rules.ts";
import type { Repairs } from "./service.ts";
import type { ItemRow, RepairPreview, ShownRepair } from "./views.ts";
import {
  repairAnswer as answer,
  itemJson,
  jsonWith,
  previewJson,
  RepairOut,
  repairJson,
  toItem,
  toPreview,
  toRepair,
} from "./wire.ts";

const text = (description: string) => Type.Optional(Type.String({ maxLength: 2_048, description }));
/** Empty it would mean all runs. */
const bound = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: 2_048, description }));

const action = Type.String({ maxLength: 20, description: `One of ${repairActions.join(", ")}.` });

const Filter = Type.Object(
  {
    function_id: bound("Runs of this function."),
    event_id: bound("Runs that this event started."),
    search: bound("A part of the run's id, the function's id or the event's name."),
    statuses: Type.Optional(
      Type.Array(Type.String(), {
        ...{ minItems: 1, maxItems: 20 },
        description: "Those that the action is for when left out.",
      }),
    ),
    since: bound("RFC 3339: created then or later."),
    until: bound("RFC 3339: created then or earlier."),
    compensation_failed: maybe.flag("Only runs with compensations that failed for good."),
    error_group: bound("Failures of this group."),
    event_name: bound("Runs that an event of this name started."),
    error_text: bound(
      "Failures whose message, code or stack holds this text within the first 2,048 characters, in either case.",
    ),
    attributes: Type.Optional(
      Type.Array(AttributeFilterShape, {
        minItems: 1,
        description: "What their attributes must be, all of them.",
      }),
    ),
  },
  { description: "As in ListRuns; at least one field." },
);

/** Which runs an attribute finds tells the value that their event gave them. */
const byValue = {
  alsoAsks: actionsThatShow("event", "stream"),
  about: ({ filter }: { filter?: Static<typeof Filter> }) =>
    filter?.attributes ? [...allThingsOf("event"), ...allThingsOf("stream")] : [],
};

const Id = Type.Object({
  id: Type.String({ minLength: 1, maxLength: 200, description: "Id of the repair (`rep_…`)." }),
});
const page = {
  limit: Type.Optional(Type.Integer()),
  cursor: text("Where the page before ended."),
};

export const ItemOut = shapeOf(RepairItemSchema, { absent: "error event_id" });

const filterIn = ({
  function_id,
  event_id,
  compensation_failed,
  error_group,
  event_name,
  error_text,
  ...rest
}: Static<typeof Filter> = {}) => ({
  ...rest,
  ...stated({ compensationFailed: compensation_failed, errorGroup: error_group, eventName: event_name }),
  ...stated({ errorText: error_text, functionId: function_id, eventId: event_id }),
});

/** Unset fields of a message are empty. */
function filterOut(message: FilterMessage | undefined): Static<typeof Filter> {
  if (!message) return {};
  const { attributes, ...m } = message;
  return {
    ...inSnakeCase(asGiven(m)),
    ...(attributes.length > 0 && { attributes: attributes.map(filterOfMessage) }),
  };
}

/** Counts with hidden runs would tell of them: a search filter could find out what is in them. */
async function shownTo(call: Call, shown: ShownRepair): Promise<ShownRepair> {
  if (!(await call.screen("runs:read", "run"))) return shown;
  const note = [shown.row.note, hiddenCounts].filter((text) => text !== "").join("; ");
  return { ...shown, row: { ...shown.row, note }, counts: noCounts() };
}

const hiddenCounts = "a deny policy may hide runs: nothing is counted here, list the items";

const read = { action: "runs:read", reads: true } as const;
const steers = { action: "runs:cancel" } as const;
const { method } = RepairService;

export const repairsOperations = (repairs: Repairs): Operation[] => [
  ...previewOperations(repairs),
  ...startOperations(repairs),
  ...readOperations(repairs),
  ...steerOperations(repairs),
];

export const RepairPreviewShape = shapeOf(PreviewRepairResponseSchema);

const previewOperations = ({ views }: Repairs): Operation[] => [
  unary({
    name: "repairs.preview",
    ...{ ...read, ...byValue },
    summary: "How many runs a repair would select, and ten of them.",
    input: Type.Object({ action, filter: Type.Optional(Filter) }),
    output: RepairPreviewShape,
    rest: { route: "POST /api/v1/repairs/preview", json: previewJson },
    rpc: rpc(
      method.previewRepair,
      (m) => ({ action: m.action, filter: filterOut(m.filter) }),
      toPreview,
      jsonWith("filter"),
    ),
    // Counts that include hidden runs would tell of them.
    lists: {
      ...listed(({ id }: SelectedRun) => [id], { under: "samples", type: "run" }),
      only: (preview: RepairPreview, samples: readonly SelectedRun[]) => ({
        ...preview,
        ...{ samples: [...samples], totalCount: samples.length, isTruncated: false, byStatus: {} },
      }),
    },
    handle: (input, call) =>
      views.preview(call.environmentId, { action: input.action, filter: filterIn(input.filter) }),
  }),
];

const startOperations = (repairs: Repairs): Operation[] => [
  unary({
    name: "repairs.start",
    ...{ ...steers, ...byValue },
    summary: "Does one action with every run that a filter selects, in the background.",
    input: Type.Object({
      action,
      filter: Type.Optional(Filter),
      step: text("Of rerun, patch and inject: the id or the name of a step."),
      output_json: maybe.text("Of patch and inject: the step's output as JSON text."),
      reason: text("Why; at most 1,024 characters."),
    }),
    output: RepairOut,
    rest: { route: "POST /api/v1/repairs", ...answer(201) },
    rpc: rpc(
      method.startRepair,
      (m) => ({
        ...{ action: m.action, filter: filterOut(m.filter), step: m.step },
        ...{ output_json: m.outputJson, reason: m.reason },
      }),
      toRepair,
      jsonWith("filter"),
    ),
    handle: ({ filter, output_json, ...input }, call) =>
      repairs.start(call.environmentId, call.caller, {
        ...input,
        ...{ filter: filterIn(filter), output: output_json },
      }),
  }),
];

const readOperations = ({ views }: Repairs): Operation[] => [
  unary({
    name: "repairs.get",
    ...read,
    summary: "One repair and how far it is.",
    input: Id,
    output: RepairOut,
    rest: { route: "GET /api/v1/repairs/{id}", ...answer(200) },
    rpc: rpc(method.getRepair, asSent, toRepair),
    handle: async ({ id }, call) => shownTo(call, await views.get(call.environmentId, id)),
  }),
  unary({
    name: "repairs.list",
    ...read,
    summary: "Repairs of the environment, newest first.",
    input: Type.Object(page),
    output: shapeOf(ListRepairsResponseSchema, { own: { repairs: Type.Array(RepairOut) } }),
    rest: {
      route: "GET /api/v1/repairs",
      json: (found: { repairs: ShownRepair[]; nextCursor: string }) => ({
        repairs: found.repairs.map(repairJson),
        next_cursor: found.nextCursor,
      }),
    },
    rpc: rpc(method.listRepairs, asSent, (found: { repairs: ShownRepair[]; nextCursor: string }) => ({
      ...{ repairs: found.repairs.map(toRepair), nextCursor: found.nextCursor },
    })),
    lists: listedById("repairs"),
    async handle(input, call) {
      const { repairs, nextCursor } = await views.list(call.environmentId, input);
      return { repairs: await Promise.all(repairs.map((one) => shownTo(call, one))), nextCursor };
    },
  }),
  unary({
    name: "repairs.items",
    ...read,
    summary: "What became of each run of a repair.",
    input: Type.Object({ ...Id.properties, outcome: text("Only these; all when left out."), ...page }),
    output: shapeOf(ListRepairItemsResponseSchema, { own: { items: Type.Array(ItemOut) } }),
    rest: {
      route: "GET /api/v1/repairs/{id}/items",
      json: (found: { items: ItemRow[]; nextCursor: string }) => ({
        items: found.items.map(itemJson),
        next_cursor: found.nextCursor,
      }),
    },
    rpc: rpc(method.listRepairItems, asSent, (found: { items: ItemRow[]; nextCursor: string }) => ({
      ...{ items: found.items.map(toItem), nextCursor: found.nextCursor },
    })),
    lists: listed(({ run_id }: ItemRow) => [run_id], { under: "items", type: "run" }),
    handle: ({ id, ...rest }, call) => views.items(call.environmentId, id, rest),
  }),
];

const steerOperations = (repairs: Repairs): Operation[] => [
  unary({
    name: "repairs.pause",
    ...steers,
    summary: "Holds a repair until it is continued.",
    input: Id,
    output: RepairOut,
    rest: { route: "POST /api/v1/repairs/{id}/pause", ...answer(200) },
    rpc: rpc(method.pauseRepair, asSent, toRepair),
    handle: async ({ id }, call) => shownTo(call, await repairs.pause(call.environmentId, id)),
  }),
  unary({
    name: "repairs.continue",
    ...steers,
    summary: "Goes on with a paused repair.",
    input: Id,
    output: RepairOut,
    rest: { route: "POST /api/v1/repairs/{id}/continue", ...answer(200) },
    rpc: rpc(method.continueRepair, asSent, toRepair),
    handle: async ({ id }, call) => shownTo(call, await repairs.goOn(call.environmentId, id)),
  }),
  unary({
    name: "repairs.stop",
    ...steers,
    summary: "Ends a repair: what has not begun is not done any more.",
    input: Id,
    output: RepairOut,
    rest: { route: "POST /api/v1/repairs/{id}/stop", ...answer(200) },
    rpc: rpc(method.stopRepair, asSent, toRepair),
    handle: async ({ id }, call) => shownTo(call, await repairs.stop(call.environmentId, id, call.caller.id)),
  }),
];
