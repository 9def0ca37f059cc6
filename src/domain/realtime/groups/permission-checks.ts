import { Fault, sendsAway } from "../../../kit/fault.ts";
import type { Log } from "../../../kit/log.ts";
import { type GroupMember, isPermitted } from "./member.ts";
import type { GroupRow } from "./rows.ts";

/** The group whose members are checked: as it is now, with those at this node. */
export interface CheckedGroup {
  readonly group: GroupRow;
  readonly members: ReadonlyMap<string, GroupMember>;
  look(): void;
}

export interface PermissionChecksDeps {
  log: Log;
  /** The member may not have what the group reads now. */
  onDenied: (member: GroupMember, fault: Fault) => void;
}

/** Asks each member's caller for the group's pattern again after that pattern has changed. */
export class PermissionChecks {
  readonly #deps: PermissionChecksDeps;
  readonly #checked: CheckedGroup;

  constructor(deps: PermissionChecksDeps, checked: CheckedGroup) {
    this.#deps = deps;
    this.#checked = checked;
  }

  /** Checks the members whose permission is for another pattern, and those whose last check failed. */
  checkAll(): void {
    const { members, group } = this.#checked;
    for (const member of members.values())
      if (!isPermitted(member, group) && !member.isCheckingPermission) void this.#check(member);
  }

  async #check(member: GroupMember): Promise<void> {
    const { log, onDenied } = this.#deps;
    member.isCheckingPermission = true;
    try {
      // The pattern may change again while the caller is checked.
      while (!member.isOver && !isPermitted(member, this.#checked.group)) {
        const { pattern } = this.#checked.group;
        await member.subscriber.permit(pattern);
        member.permitted = pattern;
      }
      this.#checked.look();
    } catch (error) {
      if (error instanceof Fault && sendsAway(error)) onDenied(member, error);
      else log.warn("groups.permit_failed", { groupId: this.#checked.group.id, error });
    } finally {
      member.isCheckingPermission = false;
    }
  }
}
