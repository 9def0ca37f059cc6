import { Fault, missing } from "../../../kit/fault.ts";
import type { Basics } from "../../../store/store.ts";
import type { Sources } from "../pubsub/delivery.ts";
import type { Acks, GroupChange } from "./ack.ts";
import type { GivenUpDeps } from "./given-up.ts";
import { GroupReader } from "./group-reader.ts";
import { groupSliceMax } from "./limits.ts";
import { type GroupMember, removeMember } from "./member.ts";
import { type GroupRow, groupsNow } from "./rows.ts";

export interface LocalReadersDeps extends Basics<"store" | "clock" | "log" | "watch">, GivenUpDeps {
  sources: Sources;
  acks: Pick<Acks, "sent" | "unsent">;
  /** Tells every node of groups in which something is due. */
  onChanged: (changes: readonly GroupChange[]) => void;
  /** A group of this node has other members, or handed something out. */
  onMoved: (environmentId: string, groupId: string) => void;
  knowsTime: () => boolean;
}

/** The group readers of this node, one for each group that has members here. */
export class LocalReaders {
  readonly #deps: LocalReadersDeps;
  /** By the id of the group. */
  readonly #readers = new Map<string, GroupReader>();
  /** Removals of members that are on their way to the store. */
  readonly #removals = new Set<Promise<void>>();
  readonly #counters: { delivered: (count: number) => void; redelivered: (count: number) => void };

  constructor(deps: LocalReadersDeps) {
    this.#deps = deps;
    const { metrics } = deps.watch;
    const delivered = metrics.counter({
      name: "svc_group_deliveries_total",
      help: "Deliveries that this node gave to members of consumer groups.",
    })();
    const redelivered = metrics.counter({
      name: "svc_group_redeliveries_total",
      help: "Of these: given before, and not acknowledged.",
    })();
    const open = metrics.gauge({
      name: "svc_group_members",
      help: "Members of consumer groups at this node.",
    })();
    metrics.beforeReading(async () => open.set(this.members().length));
    this.#counters = {
      delivered: (count) => delivered.add(count),
      redelivered: (count) => redelivered.add(count),
    };
  }

  find(groupId: string): GroupReader | undefined {
    return this.#readers.get(groupId);
  }

  all(): GroupReader[] {
    return [...this.#readers.values()];
  }

  members(): GroupMember[] {
    return this.all().flatMap((reader) => [...reader.members.values()]);
  }

  /** An open reader of the group; it follows the group's log. */
  async open(group: GroupRow): Promise<GroupReader> {
    let reader: GroupReader;
    // The last member may leave, and close the reader, before the caller can add its own: then another one is
    // opened.
    do reader = this.#readers.get(group.id) ?? (await this.#follow(group));
    while (reader.isClosed && this.#readers.get(group.id) !== reader);
    return reader;
  }

  async #follow(group: GroupRow): Promise<GroupReader> {
    const source = this.#deps.sources[group.log];
    const reader = new GroupReader(
      {
        ...this.#deps,
        source,
        counters: this.#counters,
        onMoved: () => this.#deps.onMoved(group.environment_id, group.id),
        onGone: () => this.#end(reader, missing("consumer group", group.name)),
        onDenied: (member, fault) => {
          this.leave(reader, member);
          member.subscriber.ended(fault);
        },
      },
      group,
    );
    this.#readers.set(group.id, reader);
    try {
      const following = await source.follow(group.environment_id, {
        onEntries: (entries) => reader.onEntries(entries),
        onEnd: () => this.#end(reader, missing("environment", group.environment_id)),
      });
      if (reader.isClosed) following.stop();
      else reader.follow(following);
    } catch (error) {
      this.#end(reader, error instanceof Fault ? error : unavailable());
      throw error;
    }
    return reader;
  }

  /** Removes the member; what it was not sent is due for the others, and does not count as lost with it. */
  leave(reader: GroupReader, member: GroupMember): void {
    if (member.isOver) return;
    member.isOver = true;
    reader.members.delete(member.row.id);
    if (reader.members.size === 0) this.#close(reader);
    const unsent = member.queue.splice(0).map(({ position }) => position);
    const { store, clock, log, onChanged } = this.#deps;
    const { environment_id: environmentId, group_id: groupId } = member.row;
    const now = clock.now();
    const removal = store
      .write((session) => removeMember(session, { member: member.row, now, unsent }))
      .then(() => onChanged([{ environmentId, groupId, dueAt: now }]))
      // A node that finds the member silent removes it, a few seconds later.
      .catch((error) => log.warn("groups.leave_failed", { groupId, error }))
      .finally(() => this.#removals.delete(removal));
    this.#removals.add(removal);
  }

  /** Takes up what became of these readers' groups: changed settings, something due, or a deletion. */
  async refresh(readers: readonly GroupReader[]): Promise<void> {
    for (let from = 0; from < readers.length; from += groupSliceMax) {
      const slice = readers.slice(from, from + groupSliceMax);
      const keys = slice.map(({ group }) => group);
      const found = await groupsNow(this.#deps.store, keys);
      const byId = new Map(found.map((group) => [group.id, group]));
      for (const reader of slice) {
        const group = byId.get(reader.group.id);
        if (group) reader.refresh(group, group.due_at);
        else this.#end(reader, missing("consumer group", reader.group.name));
      }
    }
  }

  async settled(): Promise<void> {
    await Promise.all(this.#removals);
  }

  #end(reader: GroupReader, fault: Fault): void {
    this.#close(reader);
    for (const { subscriber } of reader.members.values()) subscriber.ended(fault);
  }

  #close(reader: GroupReader): void {
    reader.close();
    // Another reader of the group may have been opened since.
    if (this.#readers.get(reader.group.id) === reader) this.#readers.delete(reader.group.id);
  }
}

const unavailable = () =>
  new Fault("unavailable", "the group's log cannot be read now: try again", {
    headers: { "Retry-After": "1" },
  });
