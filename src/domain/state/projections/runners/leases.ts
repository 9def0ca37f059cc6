import type { Instant } from "../../../../kit/clock.ts";
import { Fault } from "../../../../kit/fault.ts";
import { projectionLeaseMs, projectionWorkMs } from "../limits.ts";
import type { GenerationRow, HeldProjection, ProjectionRow } from "../rows.ts";
import type { Runner } from "../rules.ts";

/** `another`: somebody else may be at work on the generation. */
export type Standing = "mine" | "free" | "another";

/**
 * What a runner may do. Runners without a name that come from one address cannot be distinguished, so that a
 * stream keeps even the same caller's polls and other streams away.
 */
export function standingOf(
  generation: Pick<GenerationRow, "holder" | "stream_id" | "lease_until">,
  { holder, isNamed }: Runner,
  { streamId, now }: { streamId: string | null; now: Instant },
): Standing {
  const isLive = generation.lease_until > now;
  if (generation.holder !== holder) return isLive ? "another" : "free";
  if (generation.stream_id === streamId || isNamed) return "mine";
  return generation.stream_id !== null && isLive ? "another" : "mine";
}

/** The fence grows when the lease goes to another runner: what the one before still sends is refused. */
export function takeLease(
  generation: GenerationRow,
  { holder }: Runner,
  { streamId, now, hasWork }: { streamId: string | null; now: Instant; hasWork: boolean },
): void {
  if (generation.holder !== holder) generation.fence++;
  generation.holder = holder;
  generation.stream_id = streamId;
  generation.lease_until = now + (hasWork ? projectionWorkMs : projectionLeaseMs);
  generation.asked_at = now;
}

/** A lease that ends soon is renewed with the next look. */
export const isAging = ({ lease_until }: Pick<GenerationRow, "lease_until">, now: Instant): boolean =>
  lease_until - now < projectionLeaseMs * 0.75;

/** Grows with every change of what is folded: a delivery that was read before finds out. */
export function touch(generation: Pick<GenerationRow, "saved_at">, now: Instant): void {
  generation.saved_at = Math.max(now, generation.saved_at + 1);
}

/** Takes the lease from its holder: a rebuild, or a resume that goes back to what was delivered before. */
export function endLease(row: ProjectionRow, generation: GenerationRow, now: Instant): void {
  const { holder } = generation;
  if (row.mode === "managed" && holder?.startsWith("caller:")) {
    row.refuses_save = row.stale_holder === holder || generation.stream_id !== null ? 1 : row.refuses_save;
    row.stale_holder = holder;
  }
  // Without an owner, as of now: a runner that read the states before must not be streamed to for a while.
  generation.holder = "";
  generation.stream_id = null;
  generation.fence++;
  generation.lease_until = 0;
  touch(generation, now);
}

/** The generation that a runner means. Throws `aborted` when it is no more. */
export function generationOf(
  held: HeldProjection,
  { generation }: Pick<Runner, "generation">,
): GenerationRow {
  if (held.mode === "sql")
    throw new Fault("failed_precondition", `projection "${held.name}" is folded by the server`);
  const wanted = generation === 0 ? held.generation : generation;
  const found = held.generations.find((one) => one.generation === wanted);
  if (!found)
    throw new Fault(
      "aborted",
      `generation ${wanted} of projection "${held.name}" is over: read its state again`,
    );
  return found;
}

/** Throws unless the runner has the lease, which lasts until another takes it. */
export function requireLease(row: ProjectionRow, generation: GenerationRow, runner: Runner): void {
  const { holder, fence } = generation;
  if (holder === runner.holder && (!runner.isNamed || fence === runner.fence)) return;
  if (row.stale_holder === runner.holder)
    throw new Fault(
      "aborted",
      `projection "${row.name}" was rebuilt or resumed: what was delivered before counts no more, ask for its events again`,
    );
  throw new Fault(
    "failed_precondition",
    `this runner does not have projection "${row.name}": ask for its events first`,
  );
}

/** Events are delivered; one that failed stops an external projection, and of a managed one its partition. */
export const isFed = ({ status, mode }: Pick<ProjectionRow, "status" | "mode">): boolean =>
  status === "running" || status === "rebuilding" || (status === "error" && mode === "managed");
