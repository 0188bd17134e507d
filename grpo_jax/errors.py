"""What a user can mend: told in one paragraph, without a traceback."""


class UserError(Exception):
  """Bad input or a bad place to run in; the message says what to do.

  Attributes:
    exit_code: 2 for a wrong call, 1 for a run that cannot go on.
  """

  def __init__(self, message: str, *, exit_code: int = 2):
    super().__init__(message)
    self.exit_code = exit_code
