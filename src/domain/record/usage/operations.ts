import type { MessageInitShape } from "@bufbuild/protobuf";
import { Type } from "@sinclair/typebox";
import { GetUsageResponseSchema, SvcService, UsageRowSchema } from "../../../gen/svc/v1/svc_pb.ts";
import { sheet } from "../../../kit/csv.ts";
import { described } from "../../../kit/described.ts";
import { invalid } from "../../../kit/fault.ts";
import { shapeOf } from "../../../kit/message-shape.ts";
import { type Operation, type RestRequest, rpc, unary } from "../../../kit/operation.ts";
import { asRest } from "../../../kit/request.ts";
import type { Measure, UsedCounts } from "./counts.ts";
import { dayText } from "./rules.ts";
import { sumOf, type Usage, type UsageAnswer, type UsageLine } from "./service.ts";

const examples = ["2026-11-28"];
const day = Type.String({ examples });

export const UsageShape = shapeOf(GetUsageResponseSchema, {
  own: {
    ...{ from: day, to: day },
    rows: Type.Array(
      shapeOf(UsageRowSchema, {
        absent: "function_id other events event_bytes",
        own: { day: Type.Optional(day) },
      }),
    ),
    total: shapeOf(UsageRowSchema, { omit: "day function_id other" }),
  },
});

const fieldOf: Record<Measure, string> = {
  ...{ started: "runs_started", completed: "runs_completed", failed: "runs_failed" },
  ...{ cancelled: "runs_cancelled", steps: "steps", worker_ms: "worker_ms" },
  ...{ events: "events", event_bytes: "event_bytes" },
};
const fields = Object.entries(fieldOf) as [Measure, string][];
const isOfEnvironment = (measure: Measure): boolean => measure === "events" || measure === "event_bytes";

const countsJson = (counts: UsedCounts, isWhole: boolean) =>
  Object.fromEntries(
    fields.flatMap(([measure, field]) =>
      isWhole || !isOfEnvironment(measure) ? [[field, counts[measure]]] : [],
    ),
  );

const lineJson = (line: UsageLine) => ({
  ...(line.day !== undefined && { day: dayText(line.day) }),
  ...(line.functionId !== undefined && { function_id: line.functionId }),
  ...(line.isOther && { other: true }),
  ...countsJson(line, line.functionId === undefined && !line.isOther),
});

const usageJson = ({ from, to, lines, total }: UsageAnswer) => ({
  ...{ from: dayText(from), to: dayText(to) },
  rows: lines.map(lineJson),
  total: countsJson(total, true),
});

function usageCsv({ lines }: UsageAnswer, isByFunction: boolean): string {
  const columns = fields.filter(([measure]) => !isByFunction || !isOfEnvironment(measure));
  const named = isByFunction ? "function_id" : "day";
  const nameOf = ({ day: at, functionId = "" }: UsageLine) => (at === undefined ? functionId : dayText(at));
  return sheet([
    [named, ...columns.map(([, field]) => field)],
    ...lines.map((line) => [nameOf(line), ...columns.map(([measure]) => `${line[measure]}`)]),
  ]);
}

const countsMessage = (counts: UsedCounts) => ({
  ...{ runsStarted: BigInt(counts.started), runsCompleted: BigInt(counts.completed) },
  ...{ runsFailed: BigInt(counts.failed), runsCancelled: BigInt(counts.cancelled) },
  ...{ steps: BigInt(counts.steps), workerMs: BigInt(counts.worker_ms) },
  ...{ events: BigInt(counts.events), eventBytes: BigInt(counts.event_bytes) },
});

const toMessage = ({
  from,
  to,
  lines,
  total,
}: UsageAnswer): MessageInitShape<typeof GetUsageResponseSchema> => ({
  ...{ from: dayText(from), to: dayText(to), total: countsMessage(total) },
  rows: lines.map((line) => ({
    ...{ day: line.day === undefined ? "" : dayText(line.day), functionId: line.functionId ?? "" },
    ...{ other: line.isOther === true, ...countsMessage(line) },
  })),
});

const word = Type.String({ maxLength: 40 });
const asked = (description: string) => Type.Optional(described(word, description));
const dayAsked = (description: string) => Type.Optional({ ...described(word, description), examples });

const formats = ["json", "csv"];

const Asked = Type.Object({
  from: dayAsked("The first day, of UTC: 29 days before the last one when left out."),
  to: dayAsked("The last day, at most 91 days later: today when left out."),
  function_id: Type.Optional(Type.String({ maxLength: 2_048, description: "What this function used." })),
  group_by: asked("`day` or `function`: by day when left out."),
  format: asked("`csv` for a file; so does the header `Accept: text/csv`."),
});

/** The query's own fields, without `env` and the like; who accepts CSV alone need not say it twice. */
const decode = ({ query, headers }: RestRequest) => ({
  ...(/\btext\/csv\b/.test(headers.get("accept") ?? "") && { format: "csv" }),
  ...Object.fromEntries([...query].filter(([name]) => Object.hasOwn(Asked.properties, name))),
});

export const usageOperations = (usage: Usage): Operation[] => [
  unary({
    name: "usage.list",
    action: "usage:read",
    reads: true,
    summary:
      "What the environment used, by day or by function: runs, steps, the time of workers, and events; counted up to a minute ago.",
    input: Asked,
    output: UsageShape,
    rest: {
      route: "GET /api/v1/usage",
      decode,
      encode: (output: UsageAnswer, { format, group_by }) =>
        format === "csv"
          ? {
              status: 200,
              body: usageCsv(output, group_by === "function"),
              headers: {
                "content-type": "text/csv; charset=utf-8",
                "content-disposition": 'attachment; filename="usage.csv"',
              },
            }
          : { status: 200, body: usageJson(output) },
    },
    rpc: rpc(SvcService.method.getUsage, asRest, toMessage),
    lists: {
      items: ({ lines }: UsageAnswer) => lines,
      namesOf: ({ functionId }: UsageLine) => (functionId === undefined ? [] : [functionId]),
      type: "function",
      // The sum would tell what is hidden.
      only: (output: UsageAnswer, lines: readonly UsageLine[]) => {
        const { events, event_bytes } = output.total;
        return { ...output, lines: [...lines], total: { ...sumOf(lines), events, event_bytes } };
      },
    },
    handle({ from, to, function_id, group_by, format = "" }, call) {
      if (format !== "" && !formats.includes(format))
        throw invalid("format", `must be one of ${formats.join(", ")}`);
      return usage.of(call.environmentId, { from, to, functionId: function_id, groupBy: group_by });
    },
  }),
];
