/** One change, with its toast. */
import { toast, toastError } from "../parts/toasts";
import { send } from "./client";
import { asApiError } from "./use";

type Method = "POST" | "PUT" | "PATCH" | "DELETE";

/** Change something and say `did`; returns the answer, or null if it was refused. */
export async function change<T = object>(method: Method, path: string, body: unknown, did: string): Promise<T | null> {
  try {
    const answer = await send<T>(method, path, body);
    if (did) toast(did);
    return answer ?? ({} as T);
  } catch (error) {
    toastError(asApiError(error));
    return null;
  }
}
