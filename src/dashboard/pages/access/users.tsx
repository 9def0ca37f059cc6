import { useState } from "preact/hooks";
import {
  type AccessScope,
  changePassword,
  changeUser,
  createUser,
  deleteUser,
  listIdentities,
  listRoles,
  listUsers,
  type RoleData,
  rolesOfUser,
  type UserData,
  unlink,
} from "../../lib/access.ts";
import { plain } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { may, self } from "../../lib/session.ts";
import { Button, Text, When } from "../../ui/basics.tsx";
import {
  type ChangeEnds,
  Check,
  Choice,
  Confirm,
  type DialogEnds,
  Field,
  FormDialog,
  Opener,
  useFields,
} from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";

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

interface AskedOfUser {
  deed: "edit" | "delete" | "unlink";
  user: UserData;
}

/** Roles as a choice; none where the viewer may not see them. */
export const readRoles = async (scope: AccessScope, signal: AbortSignal): Promise<RoleData[]> =>
  may(scope.reads.roles) ? listRoles(scope, signal) : [];

export function Users({ scope }: { scope: AccessScope }) {
  const [asked, setAsked] = useState<AskedOfUser>();
  const read = useLoaded((signal) => listUsers(scope, signal), [scope]);
  const { value: roles = [] } = useLoaded((signal) => readRoles(scope, signal), [scope]);
  useFollowed(read.reload, { list: "users" });
  const manages = may(scope.manages.users);
  const own = self.value?.id;
  const done = { onDone: read.reload, onClose: () => setAsked(undefined) };
  return (
    <>
      <div class="toolbar">
        {manages && (
          <Opener kind="primary" icon="plus" text="New user…">
            {(onClose) => <UserDialog {...{ scope, roles, onClose }} onDone={read.reload} />}
          </Opener>
        )}
        {!scope.isPlatform && self.value?.kind === "user" && (
          <Opener text="Change my password…">
            {(onClose) => own && <PasswordDialog id={own} onClose={onClose} />}
          </Opener>
        )}
      </div>
      <ReadTable
        read={read}
        keyOf={({ id }) => id}
        columns={[
          {
            name: "User",
            of: ({ id, email, name }) => (
              <>
                <Text of={email} />
                {id === own && <span class="tag">you</span>}
                {name && <Text of={name} in="span" class="under" />}
              </>
            ),
          },
          { name: "Roles", of: (user) => <RoleTags of={rolesOfUser(user)} roles={roles} /> },
          ...(scope.isPlatform
            ? [
                {
                  name: "Status",
                  of: ({ is_active }: UserData) => <Status of={is_active ? "active" : "inactive"} />,
                },
              ]
            : []),
          { name: "Last login", isNumber: true, of: ({ last_login_at }) => <When at={last_login_at} /> },
          { name: "Made", isNumber: true, of: ({ created_at }) => <When at={created_at} /> },
          {
            name: "",
            of: (user) =>
              manages && (
                <span class="row-actions">
                  <Button icon="edit" text="Edit…" onClick={() => setAsked({ deed: "edit", user })} />
                  <Button icon="link" text="Sign-ins…" onClick={() => setAsked({ deed: "unlink", user })} />
                  {user.id !== own && (
                    <Button icon="trash" text="Delete…" onClick={() => setAsked({ deed: "delete", user })} />
                  )}
                </span>
              ),
          },
        ]}
        empty="No users"
      />
      {asked?.deed === "edit" && <UserDialog {...{ scope, roles }} user={asked.user} {...done} />}
      {asked?.deed === "unlink" && <UnlinkDialog scope={scope} user={asked.user} {...done} />}
      {asked?.deed === "delete" && (
        <Confirm
          title={`Delete ${plain(asked.user.email)}?`}
          verb="Delete the user"
          act={() => deleteUser(scope, asked.user.id)}
          done="User deleted"
          {...done}
        >
          <p>Every session of theirs ends.</p>
        </Confirm>
      )}
    </>
  );
}

function UserDialog(props: ChangeEnds & { scope: AccessScope; roles: readonly RoleData[]; user?: UserData }) {
  const { scope, roles, user, ...ends } = props;
  const { email: known = "", name: called = "" } = user ?? {};
  const [{ email, name, password }, field] = useFields({ email: known, name: called, password: "" });
  const [chosen, setChosen] = useState<string[]>(() => (user ? rolesOfUser(user) : []));
  const [isActive, setActive] = useState(user?.is_active ?? true);
  const [breaksGlass, setBreaksGlass] = useState(user?.break_glass ?? false);
  const submit = async () => {
    const body = {
      ...{ email, name },
      ...(scope.isPlatform ? { role_ids: chosen } : { roles: chosen }),
      ...(password !== "" && { password }),
      ...(scope.isPlatform && user && { is_active: isActive, break_glass: breaksGlass }),
    };
    await (user ? changeUser(scope, user.id, body) : createUser(scope, body));
    return `${plain(email)} ${user ? "changed" : "may sign in"}`;
  };
  return (
    <FormDialog
      title={user ? `Edit ${plain(user.email)}` : "New user"}
      submit={user ? "Save" : "Make"}
      onSubmit={submit}
      {...ends}
    >
      <Field label="Email" type="email" isRequired {...field("email")} />
      <Field label="Name" isRequired={scope.isPlatform} {...field("name")} />
      {(!user || scope.isPlatform) && (
        <Field
          label="Password"
          type="password"
          autoComplete="new-password"
          isRequired={!user}
          {...field("password")}
          {...(user && { hint: "Empty: it stays. Another one ends every session of theirs." })}
        />
      )}
      <RoleChoice roles={roles} chosen={chosen} onChange={setChosen} />
      {scope.isPlatform && user && (
        <>
          <Check label="May sign in" isChecked={isActive} onChange={setActive} />
          <Check
            label="By password even while passwords are off (break glass)"
            isChecked={breaksGlass}
            onChange={setBreaksGlass}
          />
        </>
      )}
    </FormDialog>
  );
}

/** Parts a person of a provider from the user. */
function UnlinkDialog({ scope, user, ...ends }: ChangeEnds & { scope: AccessScope; user: UserData }) {
  const { value: found = [] } = useLoaded((signal) => listIdentities(scope, user.id, signal), [user.id]);
  const [{ chosen }, field] = useFields({ chosen: "" });
  const id = chosen || found[0]?.id;
  const submit = async () => {
    await unlink(scope, user.id, id!);
    return "They sign in by it no more";
  };
  return (
    <FormDialog
      title={`Sign-ins of ${plain(user.email)}`}
      submit="Part from the user"
      isDangerous
      isDisabled={id === undefined}
      onSubmit={submit}
      {...ends}
    >
      {found.length === 0 ? (
        <p>The user signs in at no provider.</p>
      ) : (
        <Choice
          label="Person of a provider"
          {...field("chosen")}
          options={found.map((one) => [one.id, `${one.issuer_name ?? one.issuer}: ${one.subject}`] as const)}
          hint="Its sessions from there end. The last way in stays."
        />
      )}
    </FormDialog>
  );
}

function PasswordDialog({ id, onClose }: DialogEnds & { id: string }) {
  const [{ current, next }, field] = useFields({ current: "", next: "" });
  const submit = async () => {
    await changePassword(id, { current_password: current, new_password: next });
    return "Password changed: sign in again";
  };
  const secret = { type: "password", isRequired: true } as const;
  return (
    <FormDialog title="Change my password" submit="Change" onSubmit={submit} onClose={onClose}>
      <p>Every session of yours ends, this one too.</p>
      <Field label="Password of now" {...secret} autoComplete="current-password" {...field("current")} />
      <Field label="New password" {...secret} autoComplete="new-password" {...field("next")} />
    </FormDialog>
  );
}
