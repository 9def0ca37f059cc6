import { useState } from "preact/hooks";
import {
  type AccessScope,
  changePassword,
  changeUser,
  createUser,
  deleteUser,
  listRoles,
  listUsers,
  type RoleData,
  rolesOfUser,
  type UserData,
} from "../../lib/access.ts";
import { instantOf, plain } from "../../lib/format.ts";
import { useChanged, useLoaded, useNet } from "../../lib/hooks.ts";
import { may, self } from "../../lib/session.ts";
import { toast } from "../../lib/toasts.ts";
import { Button, Empty, Text, When } from "../../ui/basics.tsx";
import { Check, Confirm, Field, FormDialog } from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import { ReadTable } from "../../ui/table.tsx";
import { RoleChoice, RoleTags } from "./role-choice.tsx";

type AskedOfUsers = { deed: "create" | "password" } | { deed: "edit" | "delete"; user: UserData };

/** Roles as a choice; none where the viewer may not see them. */
export const readRoles = async (scope: AccessScope, signal: AbortSignal): Promise<RoleData[]> =>
  may(scope.reads.roles) ? listRoles(scope, signal) : [];

export function Users({ scope }: { scope: AccessScope }) {
  const [asked, setAsked] = useState<AskedOfUsers>();
  const close = () => setAsked(undefined);
  const read = useLoaded((signal) => listUsers(scope, signal), [scope]);
  const { value: roles = [] } = useLoaded((signal) => readRoles(scope, signal), [scope]);
  useChanged("users", read.reload);
  useNet(read.reload);
  const manages = may(scope.manages.users);
  const own = self.value?.id;
  const done = { onDone: read.reload, onClose: close };
  return (
    <>
      <div class="toolbar">
        {manages && (
          <Button kind="primary" icon="plus" onClick={() => setAsked({ deed: "create" })}>
            New user…
          </Button>
        )}
        {!scope.isPlatform && self.value?.kind === "user" && (
          <Button onClick={() => setAsked({ deed: "password" })}>Change my password…</Button>
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
          {
            name: "Last login",
            isNumber: true,
            of: ({ last_login_at }) => <When at={instantOf(last_login_at)} />,
          },
          { name: "Made", isNumber: true, of: ({ created_at }) => <When at={instantOf(created_at)} /> },
          {
            name: "",
            of: (user) =>
              manages && (
                <span class="row-actions">
                  <Button icon="edit" onClick={() => setAsked({ deed: "edit", user })}>
                    Edit…
                  </Button>
                  {user.id !== own && (
                    <Button icon="trash" onClick={() => setAsked({ deed: "delete", user })}>
                      Delete…
                    </Button>
                  )}
                </span>
              ),
          },
        ]}
        empty={<Empty title="No users" />}
      />
      {asked?.deed === "create" && <UserDialog {...{ scope, roles }} {...done} />}
      {asked?.deed === "edit" && <UserDialog {...{ scope, roles }} user={asked.user} {...done} />}
      {asked?.deed === "password" && own && <PasswordDialog id={own} onClose={close} />}
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

function UserDialog(props: {
  scope: AccessScope;
  roles: readonly RoleData[];
  user?: UserData;
  onDone: () => void;
  onClose: () => void;
}) {
  const { scope, roles, user, onDone, onClose } = props;
  const [email, setEmail] = useState(user?.email ?? "");
  const [name, setName] = useState(user?.name ?? "");
  const [password, setPassword] = useState("");
  const [chosen, setChosen] = useState<string[]>(() => (user ? rolesOfUser(user) : []));
  const [isActive, setActive] = useState(user?.is_active ?? true);
  const submit = async () => {
    const body = {
      ...{ email, name },
      ...(scope.isPlatform ? { role_ids: chosen } : { roles: chosen }),
      ...(password !== "" && { password }),
      ...(scope.isPlatform && user && { is_active: isActive }),
    };
    await (user ? changeUser(scope, user.id, body) : createUser(scope, body));
    toast("done", `${plain(email)} ${user ? "changed" : "may sign in"}`);
    onDone();
  };
  return (
    <FormDialog
      title={user ? `Edit ${plain(user.email)}` : "New user"}
      submit={user ? "Save" : "Make"}
      onSubmit={submit}
      onClose={onClose}
    >
      <Field label="Email" type="email" isRequired value={email} onInput={setEmail} />
      <Field label="Name" isRequired={scope.isPlatform} value={name} onInput={setName} />
      {(!user || scope.isPlatform) && (
        <Field
          label="Password"
          type="password"
          autoComplete="new-password"
          isRequired={!user}
          value={password}
          onInput={setPassword}
          {...(user && { hint: "Empty: it stays. Another one ends every session of theirs." })}
        />
      )}
      <RoleChoice roles={roles} chosen={chosen} onChange={setChosen} />
      {scope.isPlatform && user && <Check label="May sign in" isChecked={isActive} onChange={setActive} />}
    </FormDialog>
  );
}

function PasswordDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  const submit = async () => {
    await changePassword(id, { current_password: current, new_password: next });
    toast("done", "Password changed: sign in again");
  };
  return (
    <FormDialog title="Change my password" submit="Change" onSubmit={submit} onClose={onClose}>
      <p>Every session of yours ends, this one too.</p>
      <Field
        label="Password of now"
        type="password"
        autoComplete="current-password"
        isRequired
        value={current}
        onInput={setCurrent}
      />
      <Field
        label="New password"
        type="password"
        autoComplete="new-password"
        isRequired
        value={next}
        onInput={setNext}
      />
    </FormDialog>
  );
}
