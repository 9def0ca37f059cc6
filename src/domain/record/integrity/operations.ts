import { Type } from "@sinclair/typebox";
import { type Instant, rfc3339 } from "../../../kit/clock.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { tryAgain } from "../../../kit/fault.ts";
import { unary } from "../../../kit/operation.ts";
import { pageOf, pageSize } from "../../../kit/page.ts";
import { behind, type Offender, readPlace, writePlace } from "./rules.ts";
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
    age_ms: shape.count("How long it has waited, in milliseconds."),
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
    ...(check.isFailed && { failed: true }),
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

const late = () => tryAgain("unavailable", "the database did not answer in time");

const offenderJson = ({ id, at: since, facts }: Offender) => ({
  id,
  ...(since > 0 && { at: rfc3339(since) }),
  facts,
});

export const OffendersShape = Type.Object({
  rows: Type.Array(
    Type.Object({
      id: shape.text("Id of the thing, such as `run_01kf3m8q4v7x2n9t5c6b1d0e8g`."),
      at: Type.Optional(described(at, "Since when it is out of balance, or when it was changed last.")),
      facts: Type.Record(Type.String(), Type.Union([Type.String(), Type.Number()]), {
        description: "The values that tell what is wrong, by their names.",
      }),
    }),
    { description: "What is out of balance." },
  ),
  next_cursor: Type.Optional(Type.String()),
});

const rowsOperation = (integrity: Integrity) =>
  unary({
    name: "integrity.rows",
    // Rows name things of every kind, and facts of them: who sees them could read the whole org.
    action: "orgs:read",
    summary: "The rows behind the count of a check, the one that has waited longest first.",
    reads: true,
    input: Type.Object({
      check: Type.String({
        minLength: 1,
        maxLength: 200,
        description: "Name of the check: `timers.overdue`.",
      }),
      cursor: Type.Optional(Type.String({ maxLength: 4_000 })),
      limit: maybe.count("How many at most: 50 unless it says otherwise."),
    }),
    output: OffendersShape,
    rest: "GET /api/v1/integrity/{check}/rows",
    async handle({ check, cursor, limit }, call) {
      const all = await integrity.rows(call.environmentId, check);
      if (!all) throw late();
      const after = cursor === undefined || cursor === "" ? undefined : readPlace("cursor", cursor);
      const { items, nextCursor } = pageOf(behind(all, after), pageSize(limit), writePlace);
      return {
        rows: items.map(offenderJson),
        ...(nextCursor !== undefined && { next_cursor: nextCursor }),
      };
    },
  });

export const IntegrityShape = Type.Object({
  balanced: shape.flag("Whether every check counts zero."),
  checked_at: described(at, "When the checks were made, RFC 3339."),
  checks: Type.Array(
    Type.Object({
      name: shape.text("Name of the check."),
      about: shape.text("What must balance, in words."),
      count: shape.count("How many things do not."),
      failed: maybe.flag("The check could not be made, so that its count is not known."),
      oldest: Type.Optional(described(OldestThing, "The one that has waited longest; absent without any.")),
      healed: shape.count("How many the server mended by itself, since the node began."),
      healed_at: Type.Optional(described(at, "When it mended one last, RFC 3339.")),
    }),
    { description: "One for each thing that must balance." },
  ),
  purging: Type.Object(
    {
      environments: shape.count("How many deleted environments may have rows."),
      oldest: Type.Optional(
        described(OldestEnvironment, "The one that was deleted first; absent without any."),
      ),
    },
    { description: "What deleted environments have left." },
  ),
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
    output: IntegrityShape,
    rest: "GET /api/v1/integrity",
    async handle(_input, call) {
      const report = await integrity.report(call.environmentId);
      if (!report) throw late();
      return reportJson(report, await backlogOf(call.caller.orgId));
    },
  }),
  rowsOperation(integrity),
];
