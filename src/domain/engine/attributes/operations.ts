import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { maybe, shape } from "../../../kit/described.ts";
import { type Call, listed, type Operation, unary } from "../../../kit/operation.ts";
import { attributeNamesMax, attributesMax, attributeTextBytesMax } from "./limits.ts";
import { attributeTypes } from "./rules.ts";
import type { Attributes, CountedName } from "./service.ts";

const NameShape = Type.Object({
  name: shape.text("Filters and `order_by` of ListRuns take it."),
  type: shape.text(`${attributeTypes.join(", ")}: the name keeps it.`),
  first_seen_at: shape.time("When a run first set it, or a function declared it."),
  deleted_at: maybe.time("Its values are going since then; the name goes with the last."),
});

const CountedShape = Type.Composite([
  NameShape,
  Type.Object({
    runs: shape.count("Runs that have it; 0 for a caller from whom deny policies may keep runs."),
    runs_capped: shape.flag("There may be more runs: no more are counted."),
  }),
]);

type UncountedName = Pick<CountedName, "name" | "type" | "created_at" | "deleted_at">;

const nameJson = ({ name, type, created_at, deleted_at }: UncountedName) => ({
  name,
  type,
  first_seen_at: rfc3339(created_at),
  ...(deleted_at !== null && { deleted_at: rfc3339(deleted_at) }),
});

const countedJson = (row: CountedName) => ({ ...nameJson(row), runs: row.runs, runs_capped: row.isCapped });

const limits = {
  names: attributeNamesMax,
  of_run: attributesMax,
  text_bytes: attributeTextBytesMax,
};

/** Counts would tell of runs that policies hide. */
async function countsShownTo(call: Call, names: readonly CountedName[]): Promise<CountedName[]> {
  const screen = await call.screen("runs:read", "run");
  return screen ? names.map((row) => ({ ...row, runs: 0, isCapped: false })) : [...names];
}

export const AttributesShape = Type.Object({
  attributes: Type.Array(CountedShape, {
    description: "All names, in the order of their bytes; deleted ones while their values are going.",
  }),
  limits: Type.Object(
    {
      names: shape.count("Names of one environment, those that are going included."),
      of_run: shape.count("Attributes of one run."),
      text_bytes: shape.count("Of one value that is a text."),
    },
    { description: "What there may be at most." },
  ),
});

export const attributesOperations = (attributes: Attributes): Operation[] => [
  unary({
    name: "attributes.list",
    action: "attributes:read",
    alsoAsks: ["runs:read"],
    reads: true,
    waitsFor: "log",
    summary:
      "Names that runs of the environment are found by, each with its type, and how many there may be.",
    input: Type.Object({}),
    output: AttributesShape,
    rest: {
      route: "GET /api/v1/attributes",
      json: (names: readonly CountedName[]) => ({ attributes: names.map(countedJson), limits }),
    },
    lists: listed(({ name }: CountedName) => [name]),
    handle: async (_input, call) => countsShownTo(call, await attributes.list(call.environmentId)),
  }),
  unary({
    name: "attributes.delete",
    action: "attributes:manage",
    summary:
      "Deletes a name and, in the background, its values; when it is not listed any more it is free for any type.",
    input: Type.Object({
      name: Type.String({ minLength: 1, maxLength: 64, description: "Of the attribute." }),
    }),
    output: NameShape,
    rest: { route: "DELETE /api/v1/attributes/{name}", json: nameJson },
    handle: ({ name }, call) => attributes.delete(call.environmentId, name),
  }),
];
