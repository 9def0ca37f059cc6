import { Type } from "@sinclair/typebox";
import { type Instant, rfc3339 } from "../../../kit/clock.ts";
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
const Oldest = Type.Object({ id: Type.String(), age_ms: Type.Integer() });

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
      balanced: Type.Boolean(),
      checked_at: at,
      checks: Type.Array(
        Type.Object({
          name: Type.String(),
          about: Type.String(),
          count: Type.Integer(),
          oldest: Type.Optional(Oldest),
          healed: Type.Integer(),
          healed_at: Type.Optional(at),
        }),
      ),
      purging: Type.Object({ environments: Type.Integer(), oldest: Type.Optional(Oldest) }),
    }),
    rest: "GET /api/v1/integrity",
    async handle(_input, call) {
      const report = await integrity.report(call.environmentId);
      if (!report) throw tryAgain("unavailable", "the database did not answer in time");
      return reportJson(report, await backlogOf(call.caller.orgId));
    },
  }),
];
