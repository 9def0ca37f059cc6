import type { Clock } from "../../../kit/clock.ts";
import type { Store } from "../../../store/store.ts";
import { type HeldProjection, holdProjection, updateProjection } from "./rows.ts";

/** Events that a projection still needs have expired: it stops, and says so. */
export async function stopBelowFloor(
  { store, clock }: { store: Store; clock: Clock },
  held: HeldProjection,
  floor: number,
): Promise<void> {
  const message = `events below position ${floor} have expired before they were folded: rebuild the projection`;
  if (held.error_message === message) return;
  await store.write(async (session) => {
    const now = await holdProjection(session, held);
    if (!now || now.generation !== held.generation) return;
    const stopped = { status: "error", error_message: message, updated_at: clock.now() } as const;
    await updateProjection(session, { ...now, ...stopped });
  });
}
