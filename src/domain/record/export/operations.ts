import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow, allThingsOf } from "../../../gate/things.ts";
import { maybe } from "../../../kit/described.ts";
import { invalid } from "../../../kit/fault.ts";
import { type Operation, unary } from "../../../kit/operation.ts";
import { timeBound } from "../../../kit/page.ts";
import { kindsOfSections, sectionsOf } from "./lines.ts";
import type { Exports } from "./service.ts";

const ExportInput = Type.Object({
  include: Type.Optional(
    Type.String({
      description: "Sections with commas between; all of them when left out.",
      examples: ["events,runs"],
    }),
  ),
  from: maybe.text("RFC 3339: rows of logs and runs from then on."),
  to: maybe.text("RFC 3339: rows of logs and runs before then."),
});

export const exportOperations = (exports: Exports): Operation[] => [
  unary({
    name: "orgs.export",
    action: "org:export",
    scope: "none",
    reads: true,
    special: { isAudited: true },
    summary:
      "Everything of the org but secrets, as NDJSON: a line a row, the last with counts and a checksum.",
    input: ExportInput,
    // An export leaves nothing out: a policy that hides anything of these sections refuses it whole.
    about: ({ include }: Static<typeof ExportInput>) => [
      "*",
      ...kindsOfSections(sectionsOf(include)).flatMap((kind) => allThingsOf(kind)),
    ],
    alsoAsks: actionsThatShow(...kindsOfSections(sectionsOf(undefined))),
    rest: {
      route: "GET /api/v1/export",
      encode: (body) => ({
        status: 200,
        body,
        headers: {
          "content-type": "application/x-ndjson",
          "content-disposition": 'attachment; filename="svc-export.ndjson"',
        },
      }),
    },
    handle({ include, from, to }, { caller, signal }) {
      const ask = { include, from: timeBound("from", from), to: timeBound("to", to) };
      if (ask.from !== undefined && ask.to !== undefined && ask.from >= ask.to)
        throw invalid("to", "must be later than from");
      return exports.start({ ...ask, orgId: caller.orgId, signal });
    },
  }),
];
