"""What a user can mend: told in one paragraph, without a traceback."""


class UserError(Exception):
  """Bad input or a bad place to run in; the message says what to do.

  Attributes:
    exit_code: 2 for a wrong call, 1 for a run that cannot go on.
  """

  def __init__(self, message: str, *, exit_code: int = 2):
    super().__init__(message)
    self.exit_code = exit_code


def missing_extra(extra: str, error: ImportError) -> UserError:
  """The error for a package that only an extra of the installation brings.

  Args:
    extra: its name in setup.py.
    error: what the import raised.
  """
  return UserError(f"{error}. Install it with: pip install 'grpo_jax[{extra}]'")
