import { useEffect, useState } from "preact/hooks";
import { messageOf } from "../lib/api.ts";
import { signIn, signInByLink } from "../lib/session.ts";
import { Button, FormError } from "../ui/basics.tsx";
import { Field, useFields } from "../ui/dialog.tsx";

/** The link of the first start: its secret leaves the address before anything else happens. */
function takeLink(): string {
  const link = location.hash.slice(1);
  if (link !== "") history.replaceState(null, "", location.pathname);
  return link;
}

/** Signs in by password, or by the link of the first start. `isInside`: in a dialog over the page. */
export function SignIn({ isInside = false }: { isInside?: boolean }) {
  const [{ email, password }, field] = useFields({ email: "", password: "" });
  const [isPlatform, setPlatform] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState("");

  const attempt = async (enter: () => Promise<void>) => {
    setBusy(true);
    setError("");
    try {
      await enter();
    } catch (failure) {
      setError(messageOf(failure));
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => {
    const link = takeLink();
    if (link !== "") void attempt(() => signInByLink(link));
  }, []);

  const form = (
    <form
      class="form"
      onSubmit={(event) => {
        event.preventDefault();
        void attempt(() => signIn({ email, password, isPlatform }));
      }}
    >
      <Field label="Email" type="email" isRequired {...field("email")} autoComplete="username" />
      <Field
        label="Password"
        type="password"
        isRequired
        {...field("password")}
        autoComplete="current-password"
      />
      <label class="check">
        <input type="checkbox" checked={isPlatform} onChange={() => setPlatform(!isPlatform)} />
        As a user of the platform
      </label>
      <FormError of={error} />
      <Button type="submit" kind="primary" text={isBusy ? "Signing in…" : "Sign in"} isDisabled={isBusy} />
    </form>
  );
  if (isInside) return form;
  return (
    <main class="sign-in">
      <div class="sign-in-box">
        <h1>Sign in to svc</h1>
        {form}
        <p class="hint">
          The first start prints a link that signs in once. It also names the file that holds the key and the
          dashboard password of the first user.
        </p>
      </div>
    </main>
  );
}
