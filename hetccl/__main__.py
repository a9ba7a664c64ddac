from hetccl.cli import main

main()
