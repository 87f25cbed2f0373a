"""`Pool`: one model for many clients, in this process or in processes of their own."""
