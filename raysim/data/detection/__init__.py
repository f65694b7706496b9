"""Datasets of images with boxes: files in the layouts of COCO, YOLO and CARLA's users, and drawn streets."""
