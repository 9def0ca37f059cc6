import type { RoleData } from "../../lib/access.ts";
import { plain } from "../../lib/format.ts";

/** `role_admin` as people say it. */
export const roleName = (role: string, roles: readonly RoleData[] = []): string =>
  roles.find(({ id }) => id === role)?.name ?? role.replace(/^role_/, "");

/** Which roles somebody has; a role may be meant by its id or by its name. */
export function RoleChoice(props: {
  roles: readonly RoleData[];
  chosen: readonly string[];
  onChange: (chosen: string[]) => void;
}) {
  const { roles, chosen, onChange } = props;
  const has = ({ id, name }: RoleData) => chosen.includes(id) || chosen.includes(name);
  return (
    <fieldset class="field">
      <legend class="field-legend">Roles</legend>
      {roles.map((role) => (
        <label key={role.id} class="check">
          <input
            type="checkbox"
            checked={has(role)}
            onChange={({ currentTarget: { checked } }) => {
              const rest = chosen.filter((one) => one !== role.id && one !== role.name);
              onChange(checked ? [...rest, role.id] : rest);
            }}
          />
          <bdi>{plain(role.name)}</bdi>
        </label>
      ))}
      {chosen.length === 0 && <p class="hint">Without a role nothing is allowed.</p>}
    </fieldset>
  );
}

export const RoleTags = ({ of, roles }: { of: readonly string[]; roles?: readonly RoleData[] }) =>
  of.length === 0 ? (
    <span class="faint">none</span>
  ) : (
    <span class="triggers">
      {of.map((role) => (
        <span key={role} class="tag">
          <bdi>{plain(roleName(role, roles))}</bdi>
        </span>
      ))}
    </span>
  );
