import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../kit/clock.ts";
import { Fault } from "../../kit/fault.ts";
import { unary } from "../../kit/operation.ts";
import type { Integrity, Report } from "./service.ts";

const at = Type.String({ format: "date-time" });

const reportJson = (report: Report) => ({
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
});

export const integrityOperations = (integrity: Integrity) => [
  unary({
    name: "integrity.report",
    action: "runs:read",
    summary: "What must balance in the environment, and whether it does.",
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
          oldest: Type.Optional(Type.Object({ id: Type.String(), age_ms: Type.Integer() })),
          healed: Type.Integer(),
          healed_at: Type.Optional(at),
        }),
      ),
    }),
    rest: "GET /api/v1/integrity",
    async handle(_input, call) {
      const report = await integrity.report(call.environmentId);
      if (!report)
        throw new Fault("unavailable", "the database did not answer in time", {
          headers: { "Retry-After": "1" },
        });
      return reportJson(report);
    },
  }),
];
