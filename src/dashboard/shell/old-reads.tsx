import { messageOf } from "../lib/api.ts";
import { ago, clockTime } from "../lib/format.ts";
import { oldReads, useTick } from "../lib/hooks.ts";
import { Button, Text } from "../ui/basics.tsx";
import { Icon } from "../ui/icons.tsx";

/** Says over any page since when what it shows is old, and why reading it again fails. */
export function OldReads() {
  const all = oldReads.value;
  const now = useTick(1_000, all.length > 0);
  const [oldest] = all.toSorted((one, other) => one.since - other.since);
  if (!oldest) return null;
  const { since, error } = oldest;
  return (
    <div class="failure old-reads" role="status">
      <Icon name="alert" />
      <p>
        {`What you see was read at ${clockTime(since).slice(0, 8)} (`}
        {/* It would be read out each second. */}
        <span class="number" aria-hidden="true">
          {ago(since, now)}
        </span>
        {"). Reading it again fails: "}
        <Text of={messageOf(error)} />
      </p>
      <Button
        text="Read again"
        onClick={() => {
          for (const { reload } of all) reload();
        }}
      />
    </div>
  );
}
