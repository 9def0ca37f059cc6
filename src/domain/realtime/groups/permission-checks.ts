import { Fault, sendsAway } from "../../../kit/fault.ts";
import type { Log } from "../../../kit/log.ts";
import type { GroupMember } from "./member.ts";
import type { GroupRow } from "./rows.ts";

/** Whether members may have what their group reads now. */
export interface PermissionChecks {
  isPermitted(member: GroupMember): boolean;
  /** Asks for those who were permitted something else, also where asking has failed before. */
  checkAll(): void;
}

export interface PermissionChecksHost {
  members: ReadonlyMap<string, GroupMember>;
  /** As it is now. */
  group: () => GroupRow;
  onPermitted: () => void;
}

export function openPermissionChecks(
  { log, onDenied }: { log: Log; onDenied: (member: GroupMember, fault: Fault) => void },
  { members, group, onPermitted }: PermissionChecksHost,
): PermissionChecks {
  const isPermitted = ({ permitted }: GroupMember): boolean => permitted === group().pattern;

  async function check(member: GroupMember): Promise<void> {
    member.checkingPermission = true;
    try {
      while (!member.over && !isPermitted(member)) {
        const { pattern } = group();
        await member.reader.permit(pattern);
        member.permitted = pattern;
      }
      onPermitted();
    } catch (error) {
      if (error instanceof Fault && sendsAway(error)) onDenied(member, error);
      else log.warn("groups.ask_failed", { groupId: group().id, error });
    } finally {
      member.checkingPermission = false;
    }
  }

  return {
    isPermitted,
    checkAll() {
      for (const member of members.values())
        if (!isPermitted(member) && !member.checkingPermission) void check(member);
    },
  };
}
