import { Type } from "@sinclair/typebox";
import { type Instant, rfc3339 } from "../../../kit/clock.ts";
import { described } from "../../../kit/described.ts";
import { tryAgain } from "../../../kit/fault.ts";
import { unary } from "../../../kit/operation.ts";
import type { Integrity, IntegrityReport } from "./service.ts";

/** What is left of an org's deleted environments: rows that the purge has not reached yet. */
export interface PurgeBacklog {
  /** Deleted environments of which rows may be left, counted up to a bound. */
  environments: number;
  /** The one that was deleted first. */
  oldest: { id: string; at: Instant } | null;
}

const at = Type.String({ format: "date-time" });
const Oldest = (id: string) =>
  Type.Object({
    id: Type.String({ description: id }),
    age_ms: Type.Integer({ description: "How long it has waited, in milliseconds." }),
  });
const OldestThing = Oldest("Id of the thing, such as `run_01kf3m8q4v7x2n9t5c6b1d0e8g`.");
const OldestEnvironment = Oldest("Id of the environment (`env_…`).");

const reportJson = (report: IntegrityReport, { environments, oldest }: PurgeBacklog) => ({
  balanced: report.balanced,
  checked_at: rfc3339(report.at),
  checks: report.checks.map((check) => ({
    name: check.name,
    about: check.about,
    count: check.count,
    ...(check.oldest && {
      oldest: { id: check.oldest.id, age_ms: Math.max(0, report.at - check.oldest.at) },
    }),
    healed: check.healed,
    ...(check.healedAt !== null && { healed_at: rfc3339(check.healedAt) }),
  })),
  purging: {
    environments,
    ...(oldest && { oldest: { id: oldest.id, age_ms: Math.max(0, report.at - oldest.at) } }),
  },
});

export const integrityOperations = (
  integrity: Integrity,
  backlogOf: (orgId: string) => Promise<PurgeBacklog>,
) => [
  unary({
    name: "integrity.report",
    action: "runs:read",
    summary:
      "What must balance in the environment, whether it does, and what the org's deleted ones have left.",
    reads: true,
    input: Type.Object({}),
    output: Type.Object({
      balanced: Type.Boolean({ description: "Whether every check counts zero." }),
      checked_at: described(at, "When the checks were made, RFC 3339."),
      checks: Type.Array(
        Type.Object({
          name: Type.String({ description: "Name of the check." }),
          about: Type.String({ description: "What must balance, in words." }),
          count: Type.Integer({ description: "How many things do not." }),
          oldest: Type.Optional(
            described(OldestThing, "The one that has waited longest; absent without any."),
          ),
          healed: Type.Integer({
            description: "How many the server mended by itself, since the node began.",
          }),
          healed_at: Type.Optional(described(at, "When it mended one last, RFC 3339.")),
        }),
        { description: "One for each thing that must balance." },
      ),
      purging: Type.Object(
        {
          environments: Type.Integer({ description: "How many deleted environments may have rows." }),
          oldest: Type.Optional(
            described(OldestEnvironment, "The one that was deleted first; absent without any."),
          ),
        },
        { description: "What deleted environments have left." },
      ),
    }),
    rest: "GET /api/v1/integrity",
    async handle(_input, call) {
      const report = await integrity.report(call.environmentId);
      if (!report) throw tryAgain("unavailable", "the database did not answer in time");
      return reportJson(report, await backlogOf(call.caller.orgId));
    },
  }),
];
